package pool

import (
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool/internal/link"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

// Errors of a node, for errors.Is on the causes of a redlock.QuorumError. The message ends with the
// server's own text.
var (
	// ErrReplica means that the server is a replica. Its primary may grant the locks that it
	// granted, or overwrite them.
	ErrReplica = record.ErrReplica
	// ErrLoading means that the server is still reading its data from disk.
	ErrLoading = wire.ErrLoading
	// ErrAuth means that the user or password was rejected, or is missing.
	ErrAuth = wire.ErrAuth
	// ErrPermission means that the ACL forbids a command or key that locks need.
	ErrPermission error = wire.ErrPermission
	// ErrCluster means that the server is a node of a Redis Cluster with several shards, which
	// redirects keys of other slots. The primary of a cluster of one shard is a server like any
	// other.
	ErrCluster error = record.ErrCluster
	// ErrSentinel means that the server is a Redis Sentinel.
	ErrSentinel = record.ErrSentinel
	// ErrUnsupported means that the server lacks a command that locks need.
	ErrUnsupported error = wire.ErrUnsupported
	// ErrWrongType means that the lock's key holds something other than a string.
	ErrWrongType = protocol.ErrWrongType
	// ErrCounter means that the key with the highest fencing token of a name is invalid.
	ErrCounter = protocol.ErrCounter
	// ErrStalled means that the server left requests unanswered for StallTimeout, or that a stage
	// of connecting exceeded DialTimeout. The message names the look-up of the name, the dial, the
	// credentials or the TLS configuration; otherwise the server has not answered the first
	// questions.
	ErrStalled = link.ErrStalled
	// ErrReplyTooLarge means that the server sent, or announced, more than any reply that locks ask
	// for. The connection is closed before the reply is read.
	ErrReplyTooLarge = wire.ErrReplyTooLarge
	// ErrFull: too many requests wait for this node.
	ErrFull = link.ErrFull
	// ErrExpired: the request waited to be sent for longer than its timeout.
	ErrExpired = link.ErrExpired
	// ErrClosed: the node was closed.
	ErrClosed = link.ErrClosed
)
