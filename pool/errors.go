package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/redlock"
)

// What is wrong with a node, for errors.Is on the causes of a
// redlock.QuorumError. The message has the server's own words behind it.
var (
	// ErrReplica: the server is a replica. Its primary may grant what it has
	// granted, or overwrite it.
	ErrReplica = errors.New("is a replica and must not vote; give its primary instead")
	// ErrLoading: the server is still reading its data from disk.
	ErrLoading = errors.New("is loading its data and cannot answer yet")
	// ErrAuth: the user or password was not accepted, or is missing.
	ErrAuth = errors.New("does not accept the user or password; check the URL and the server's ACL")
	// ErrPermission: the ACL forbids a command or key that locks need.
	ErrPermission = errors.New("does not permit a command that locks need; see the package's documentation for the ACL")
	// ErrWrongType: the lock's key holds something else than a string.
	ErrWrongType = redlock.ErrWrongType
	// ErrStalled: the server left requests unanswered for StallTimeout, or a new
	// connection's first questions for DialTimeout.
	ErrStalled = errors.New("does not answer")
	// ErrFull: too many requests wait for this node.
	ErrFull = errors.New("too many requests are waiting for this node")
	// ErrExpired: the request waited to be sent for longer than its timeout.
	ErrExpired = errors.New("not sent in time")
	// ErrClosed: the node was closed.
	ErrClosed = errors.New("node closed")
)

// errRecord: the epoch record is none of ours.
var errRecord = errors.New("has an epoch record that this version does not understand; was it written by a newer one?")

// errScripts: somebody ran SCRIPT FLUSH. The node will vote when it is asked again.
var errScripts = &redlock.QuarantineError{Reason: "has lost its scripts; they are being loaded again"}

// errDialling: the caller's dial function is still busy with an earlier attempt.
var errDialling = errors.New("the dial function has not returned since an earlier attempt")

// errHandshake: connected, but no answer to the first questions in time.
var errHandshake = fmt.Errorf("accepts connections but %w", ErrStalled)

// serverErrors are the codes of Redis errors that have a meaning for locks. A
// server that is sick is sick for all requests: its connection is given up, and
// the handshake of the next one says when it is well again.
var serverErrors = map[string]struct {
	err  error
	sick bool
}{
	"READONLY":   {ErrReplica, true},
	"MASTERDOWN": {ErrReplica, true},
	"LOADING":    {ErrLoading, true},
	"NOAUTH":     {ErrAuth, true},
	"WRONGPASS":  {ErrAuth, true},
	"BUSY":       {nil, true}, // a script runs for too long
	"NOPERM":     {ErrPermission, false},
	"WRONGTYPE":  {ErrWrongType, false},
}

// explain gives a server's error reply a meaning.
func explain(err redis.Error) (meaning error, sick bool) {
	known := serverErrors[code(string(err))]
	if known.err == nil {
		return fmt.Errorf("says %q", string(err)), known.sick
	}
	return fmt.Errorf("%w (%s)", known.err, string(err)), known.sick
}

// code returns the code of a server's error. Servers before Redis 7 wrap what
// went wrong in a script: "ERR Error running script (...): WRONGTYPE ...".
func code(message string) string {
	first, rest, _ := strings.Cut(message, " ")
	switch {
	case first != "ERR":
		return first
	case strings.HasPrefix(rest, "The user executing the script can't"):
		return "NOPERM" // for a command within a script, Redis 7 has no code
	}
	for _, word := range strings.Fields(rest) {
		word = strings.TrimLeft(word, "-")
		if _, known := serverErrors[word]; known {
			return word
		}
	}
	return first
}

// explainDial gives the error of a connection attempt a meaning. The address
// is left out: the node's name stands before it already.
func explainDial(err error) error {
	var reply redis.Error // from a foreign dial's own login
	if errors.As(err, &reply) {
		meaning, _ := explain(reply)
		return meaning
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errHandshake
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}
