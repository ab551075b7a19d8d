package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A dialer makes a connection that is ready for requests, but not vetted. The
// context bounds all of it.
type dialer func(context.Context) (redis.Conn, error)

// dialer connects to t. redigo's own Dial lets the TLS handshake and AUTH
// outlive the context, and knows no unix sockets in URLs.
func (t *target) dialer(s *settings) dialer {
	return func(ctx context.Context) (redis.Conn, error) {
		var d net.Dialer
		raw, err := d.DialContext(ctx, t.network, t.address)
		if err != nil {
			return nil, err
		}
		if t.tls {
			if raw, err = t.handshakeTLS(ctx, raw, s.tls); err != nil {
				return nil, err
			}
		}
		c := redis.NewConn(&quietConn{raw}, 0, 0)
		if err := t.login(ctx, c); err != nil {
			c.Close()
			return nil, err
		}
		return &ownConn{Conn: c, raw: raw}, nil
	}
}

func (t *target) handshakeTLS(ctx context.Context, raw net.Conn, config *tls.Config) (net.Conn, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if config != nil {
		c = config.Clone()
	}
	if c.ServerName == "" {
		c.ServerName = t.host
	}
	secure := tls.Client(raw, c)
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}

// login authenticates and selects the database.
func (t *target) login(ctx context.Context, c redis.Conn) error {
	var questions []question
	switch {
	case t.auth && t.user != "":
		questions = append(questions, question{name: "AUTH", args: []any{t.user, t.password}, must: true, secret: true})
	case t.auth:
		questions = append(questions, question{name: "AUTH", args: []any{t.password}, must: true, secret: true})
	}
	if t.database != 0 {
		questions = append(questions, question{name: "SELECT", args: []any{t.database}, must: true})
	}
	return ask(ctx, c, questions)
}

// foreignDialer makes dial honour the context even if it does not: a dial that
// takes too long is left to itself, and its connection closed when it comes.
// There is no other dial until then, so that a server which hangs does not
// collect them.
func foreignDialer(dial func(context.Context) (redis.Conn, error)) dialer {
	type result struct {
		c   redis.Conn
		err error
	}
	var dialling atomic.Bool
	return func(ctx context.Context) (redis.Conn, error) {
		if !dialling.CompareAndSwap(false, true) {
			return nil, errDialling
		}
		done := make(chan result)
		go func() {
			defer dialling.Store(false)
			c, err := dial(ctx)
			if err == nil && c == nil {
				err = errors.New("the dial function returned neither a connection nor an error")
			}
			select {
			case done <- result{c, err}:
			case <-ctx.Done():
				if c != nil {
					c.Close()
				}
			}
		}()
		select {
		case r := <-done:
			return r.c, r.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// A quietConn spares the system the deadline that redigo resets before each
// read, though none is ever set.
type quietConn struct{ net.Conn }

func (c *quietConn) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// A question is a command of the handshake.
type question struct {
	name   string
	args   []any
	must   bool        // an error reply ends the handshake
	secret bool        // an error reply may repeat the arguments, and is not shown
	answer func(v any) // gets the reply if it is no error
}

// ask pipelines the questions. The connection is closed, and with it every
// wait for it ended, when ctx ends first.
func ask(ctx context.Context, c redis.Conn, questions []question) error {
	if len(questions) == 0 {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	for _, q := range questions {
		if err := c.Send(q.name, q.args...); err != nil {
			return because(ctx, err)
		}
	}
	if err := c.Flush(); err != nil {
		return because(ctx, err)
	}
	var said error // a server that hangs up may have said why
	for _, q := range questions {
		v, err := c.Receive()
		reply, isReply := err.(redis.Error)
		switch {
		case err == nil && q.answer != nil:
			q.answer(v)
		case isReply && q.secret:
			// "unknown command 'AUTH', with args beginning with: ..."
			return fmt.Errorf("%w (%s)", ErrAuth, code(string(reply)))
		case isReply:
			meaning, sick := explain(reply)
			if q.must || sick {
				return meaning
			}
			if said == nil {
				said = meaning
			}
		case err != nil && said != nil && ctx.Err() == nil:
			return said
		case err != nil:
			return because(ctx, err)
		}
	}
	return nil
}

// because prefers the context's error: its end closes the connection, and what
// that looks like explains nothing.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
