package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool/internal/wire"
)

// The errors of a connection. Package pool explains them.
var (
	ErrStalled = errors.New("does not answer")
	ErrExpired = errors.New("not sent in time")
	ErrClosed  = errors.New("node closed")
	ErrFull    = errors.New("too many requests are waiting for this node")

	// ErrHandshake means that a new connection did not answer the first questions in time.
	ErrHandshake = fmt.Errorf("accepts connections but %w", ErrStalled)
)

// A StageError is a failure to connect before the server could be asked anything. It names the
// stage.
type StageError struct {
	Stage string // for example dial, or credentials
	Err   error
}

func (e *StageError) Error() string { return e.Stage + ": " + e.Err.Error() }
func (e *StageError) Unwrap() error { return e.Err }

// AtStage returns the error of a stage of connecting, or nil. The error of a stage that timed out
// matches ErrStalled, and includes the cause in err.
func AtStage(stage string, err error) error {
	switch {
	case err == nil:
		return nil
	case err == context.DeadlineExceeded:
		err = fmt.Errorf("%w in time", ErrStalled)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w in time: %w", ErrStalled, err)
	}
	return &StageError{stage, err}
}

// AtDial is like AtStage, but removes the address from the error of a dial.
func AtDial(stage string, err error) error {
	var op *net.OpError
	switch {
	case !errors.As(err, &op) || op.Err == nil:
	case op.Timeout():
		err = context.DeadlineExceeded
	default:
		err = op.Err
	}
	return AtStage(stage, err)
}

// Explain returns an error of a connection attempt in terms that a user understands. It omits the
// address, because the name of the node precedes the error.
func Explain(err error) error {
	if _, ok := errors.AsType[*StageError](err); ok {
		return err
	}
	var reply redis.Error // from the login in the caller's dial function
	if errors.As(err, &reply) {
		meaning, _ := wire.Explain(reply)
		return meaning
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrHandshake
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		switch { // the first two errors come from package tls
		case op.Op == "remote error" && strings.Contains(op.Err.Error(), "certificate"):
			return fmt.Errorf("TLS: requires another certificate of the client: configure one that its authority has signed (%w)", op.Err)
		case op.Op == "remote error":
			return fmt.Errorf("TLS: ends the handshake: see whether it requires a certificate of the client (%w)", op.Err)
		}
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}

// IsHangUp reports whether the server has ended the connection.
func IsHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// A Question is a command that is sent before a connection is used.
type Question struct {
	Name     string
	Args     []any
	Required bool // an error reply ends the connection
	Secret   bool // hides the text of an error reply, which may repeat the arguments

	Answered func(v any)            // receives the answer; may be nil
	Refused  func(said redis.Error) // receives an error reply that does not end the connection; may be nil
}

// subject returns the command with its key, section or subcommand.
func (q *Question) subject() string {
	if q.Secret || len(q.Args) == 0 {
		return q.Name
	}
	return fmt.Sprint(q.Name, " ", q.Args[0])
}

// Ask pipelines the questions. If ctx ends first, Ask closes the connection, which ends every wait
// for a reply.
func Ask(ctx context.Context, c redis.Conn, questions ...Question) error {
	if len(questions) == 0 {
		return nil
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	err := ask(c, questions)
	if ctx.Err() != nil { // the end of ctx has closed the connection, so err explains nothing
		return ctx.Err()
	}
	return err
}

func ask(c redis.Conn, questions []Question) error {
	for _, q := range questions {
		if err := c.Send(q.Name, q.Args...); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return err
	}
	var said error // a reason that the server may have sent before it hung up
	for _, q := range questions {
		v, err := receive(c)
		reply, isReply := err.(redis.Error)
		switch {
		case err == nil && q.Answered != nil:
			q.Answered(v)
		case isReply && q.Secret:
			// "unknown command 'AUTH', with args beginning with: ..."
			if strings.Contains(string(reply), "without any password configured") {
				return fmt.Errorf("%w (the server has no password: omit it, or set one on the server)", wire.ErrAuth)
			}
			return fmt.Errorf("%w (%.100s)", wire.ErrAuth, wire.Code(string(reply)))
		case isReply:
			meaning, fatal := wire.Explain(reply)
			if q.Required && errors.Unwrap(meaning) == nil {
				return fmt.Errorf("%w (to %s)", meaning, q.subject())
			}
			if q.Required || fatal {
				return meaning
			}
			if q.Refused != nil {
				q.Refused(reply)
			} else if said == nil {
				said = meaning
			}
		case errors.Is(err, wire.ErrReplyTooLarge):
			return fmt.Errorf("%w (to %s)", err, q.subject())
		case err != nil:
			return cmp.Or(said, err)
		}
	}
	return nil
}

// receive waits for a reply without a limit, even if the caller's dial function set a read timeout,
// because an idle connection is not a broken one. It turns a panic into an error: redigo panics on
// a reply with an absurd length. A Conn rejects such a reply.
func receive(c redis.Conn) (reply any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: reading it panics: %v", wire.ErrUnexpected, p)
		}
	}()
	if ct, ok := c.(redis.ConnWithTimeout); ok {
		return ct.ReceiveWithTimeout(0)
	}
	return c.Receive()
}
