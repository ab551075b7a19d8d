package pool

import (
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/link"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

// The errors of a node, for errors.Is on the causes of a redlock.QuorumError. The server's own words
// stand behind them in the message.
var (
	// ErrReplica: the server is a replica. Its primary may grant what it has
	// granted, or overwrite it.
	ErrReplica = wire.ErrReplica
	// ErrLoading: the server is still reading its data from disk.
	ErrLoading = wire.ErrLoading
	// ErrAuth: the user or password was not accepted, or is missing.
	ErrAuth = wire.ErrAuth
	// ErrPermission: the ACL forbids a command or key that locks need.
	ErrPermission error = wire.ErrPermission
	// ErrCluster: the server is a node of a Redis Cluster with several shards. It sends keys of other
	// slots elsewhere. The primary of a cluster of one shard is a server as any other.
	ErrCluster error = wire.ErrCluster
	// ErrSentinel: the server is a Redis Sentinel.
	ErrSentinel = link.ErrSentinel
	// ErrUnsupported: the server does not know a command that locks need.
	ErrUnsupported error = wire.ErrUnsupported
	// ErrWrongType: the lock's key holds something else than a string.
	ErrWrongType = protocol.ErrWrongType
	// ErrCounter: the key of a name's highest fencing token makes no sense.
	ErrCounter = protocol.ErrCounter
	// ErrStalled: the server left requests unanswered for StallTimeout, or a stage of connecting was not
	// over within DialTimeout: the message names the look-up of the name, the dial, the credentials or the TLS
	// configuration, and otherwise the server has not answered the first questions.
	ErrStalled = link.ErrStalled
	// ErrReplyTooLarge: the server sent, or announced, more than any reply that locks ask for. The
	// connection is closed before the reply is read.
	ErrReplyTooLarge = wire.ErrReplyTooLarge
	// ErrFull: too many requests wait for this node.
	ErrFull = link.ErrFull
	// ErrExpired: the request waited to be sent for longer than its timeout.
	ErrExpired = link.ErrExpired
	// ErrClosed: the node was closed.
	ErrClosed = link.ErrClosed
)
