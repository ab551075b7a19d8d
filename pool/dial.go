package pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool/internal/link"
)

// members returns how to reach t and its standbys.
func (t *target) members(s *settings) (all members) {
	for _, one := range t.all() {
		m := member{one.address, one.dialer(s), one.dialer(s)}
		if s.netDial != nil || s.tls != nil || s.credentials != nil { // which may have functions of the caller's, too
			m.dial, m.hint = oneAtATime(m.dial), oneAtATime(m.hint)
		}
		all = append(all, m)
	}
	return all
}

// dialer connects to t. redigo's own Dial lets the TLS handshake and AUTH outlive the context, and
// knows no unix sockets in URLs.
func (t *target) dialer(s *settings) link.Dial {
	if t.names == nil {
		t.names = newResolver(t, s)
	}
	return func(ctx context.Context) (redis.Conn, error) { return t.dial(ctx, s) }
}

func (t *target) dial(ctx context.Context, s *settings) (redis.Conn, error) {
	addresses := []string{t.address}
	stage := "dial"
	if t.names != nil {
		var err error
		if addresses, err = t.names.addresses(ctx); err != nil {
			return nil, link.AtStage("look-up", err)
		}
		stage += " " + addresses[0]
	}
	if len(addresses) > 1 {
		return t.dialAll(ctx, s, addresses)
	}
	netDial := s.netDial
	if netDial == nil {
		netDial = new(net.Dialer).DialContext
	}
	raw, err := netDial(ctx, t.network, addresses[0])
	switch {
	case err != nil:
		return nil, link.AtDial(stage, err)
	case raw == nil:
		return nil, errNoConn
	case s.netDial != nil:
		unblock(raw)
	}
	c, err := t.greet(ctx, s, raw)
	if err == nil && t.names != nil {
		t.names.watch(c, addresses[0], addresses)
	}
	return c, err
}

// greet makes a connection that is ready for the handshake of what was dialled.
func (t *target) greet(ctx context.Context, s *settings, raw net.Conn) (redis.Conn, error) {
	if t.tls {
		enter(ctx, "TLS configuration")
		config, err := t.tlsConfig(ctx, s)
		if err != nil {
			raw.Close()
			return nil, err
		}
		enter(ctx, tlsStage)
		secure := tls.Client(raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, explainTLS(err)
		}
		raw = secure
	}
	c := link.NewConn(raw) // its replies are bounded while it logs in, too
	if err := t.login(ctx, c, s); err != nil {
		c.Close()
		return nil, err
	}
	if s.Reauthenticate > 0 && !t.auth {
		c.Auth = func(ctx context.Context) ([]string, error) { return t.authWords(ctx, s) }
	}
	return c, nil
}

// unblock has the socket of c not block, as package net made it. A dial function that asks for the
// descriptor of TCPConn.File, as much code does to set an option, leaves it blocking. A Read then
// holds a thread until the server answers, and Close waits for it, so that a silent server could not
// be given up. A connection that wraps the socket in anything but TLS is left as it is.
func unblock(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	socket, ok := c.(interface{ File() (*os.File, error) })
	if !ok {
		return
	}
	file, err := socket.File()
	if err != nil {
		return
	}
	defer file.Close()
	// FileConn makes what it returns non-blocking. That is a mode of the socket, and c shares it.
	if same, err := net.FileConn(file); err == nil {
		same.Close()
	}
}

// tlsConfig returns the configuration of this moment.
func (t *target) tlsConfig(ctx context.Context, s *settings) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.tls != nil {
		given, err := s.tls(ctx, t.address)
		if err != nil {
			return nil, link.AtStage("TLS configuration", err)
		}
		if c = given.Clone(); c == nil {
			return nil, errNoConfig
		}
	}
	if c.ServerName == "" {
		c.ServerName = t.host
	}
	return c, nil
}

// explainTLS says what a handshake that failed may mean. A server without TLS hangs up, or answers
// in its own protocol.
func explainTLS(err error) error {
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, context.DeadlineExceeded): // Redis waits for the end of a line
		return fmt.Errorf("%w to TLS; %s", link.ErrHandshake, link.Schemes)
	case link.IsHangUp(err) || errors.As(err, &record):
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Err != nil {
			err = op.Err // without the addresses
		}
		return fmt.Errorf("TLS: %w; "+link.Schemes, err)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return fmt.Errorf("TLS: its certificate has expired, or is not valid yet: renew it, or set the clocks (%s)", invalid.Detail)
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Errorf("TLS: its certificate is not for the host in the URL: use a name or address that the certificate has (%w)", name)
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("TLS: its certificate is signed by an authority that is not trusted here: trust that authority, if it is the right one (%w)", unknown)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return link.Explain(err)
	}
	return fmt.Errorf("TLS: %w", err)
}

// login authenticates and selects the database.
func (t *target) login(ctx context.Context, c redis.Conn, s *settings) error {
	enter(ctx, "credentials")
	words, err := t.authWords(ctx, s)
	if err != nil {
		return err
	}
	enter(ctx, "")
	var questions []link.Question
	if len(words) > 0 {
		questions = append(questions, link.Question{Name: "AUTH", Args: redis.Args{}.AddFlat(words), Required: true, Secret: true})
	}
	if t.database != 0 {
		questions = append(questions, link.Question{Name: "SELECT", Args: []any{t.database}, Required: true})
	}
	return link.Ask(ctx, c, questions...)
}

// authWords returns what follows AUTH, with the credentials of this moment. It is empty for a
// connection that is not authenticated.
func (t *target) authWords(ctx context.Context, s *settings) ([]string, error) {
	user, password, auth := t.user, t.password, t.auth
	if s.credentials != nil && !auth {
		var err error
		if user, password, err = s.credentials(ctx, t.address); err != nil {
			return nil, link.AtStage("credentials", err)
		}
		auth = password != ""
	}
	if !auth {
		return nil, nil
	}
	if user == "" {
		return []string{password}, nil
	}
	return []string{user, password}, nil
}

var (
	// errDialling is for an attempt while a function of the caller's is busy with an earlier one.
	errDialling = errors.New("a function of the program, for dialling, credentials or the TLS configuration, has not returned from an earlier attempt")
	errNoConn   = errors.New("the dial function returned neither a connection nor an error")
	errNoConfig = errors.New("the function of TLSFunc returned neither a configuration nor an error")
)

const tlsStage = "TLS"

// stageKey is for the stage that a connection which oneAtATime makes has come to.
type stageKey struct{}

// enter notes the stage. The empty one is that of the questions to the server.
func enter(ctx context.Context, stage string) {
	if at, ok := ctx.Value(stageKey{}).(*atomic.Pointer[string]); ok {
		at.Store(&stage)
	}
}

// oneAtATime makes the caller's functions honour the context even if they do not by themselves. A
// dial that takes too long goes on alone, and its connection is closed when it comes. There is no
// other dial until then, so that the dials to a server that hangs do not collect.
func oneAtATime(dial link.Dial) link.Dial {
	type result struct {
		c   redis.Conn
		err error
	}
	var dialling atomic.Bool
	return func(ctx context.Context) (redis.Conn, error) {
		if !dialling.CompareAndSwap(false, true) {
			return nil, errDialling
		}
		done, stage := make(chan result), new(atomic.Pointer[string])
		ctx = context.WithValue(ctx, stageKey{}, stage)
		enter(ctx, "dial")
		go func() {
			defer dialling.Store(false)
			c, err := dial(ctx)
			if err == nil && c == nil {
				err = errNoConn
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
			switch at := *stage.Load(); {
			case ctx.Err() != context.DeadlineExceeded || at == "":
				return nil, ctx.Err()
			case at == tlsStage:
				return nil, explainTLS(ctx.Err())
			default:
				return nil, link.AtStage(at, ctx.Err())
			}
		}
	}
}
