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

// members returns the ways to reach t and its standbys.
func (t *target) members(s *settings) (all members) {
	for _, one := range t.all() {
		m := member{one.address, one.dialer(s), one.dialer(s)}
		if s.netDial != nil || s.tls != nil || s.credentials != nil { // these may include functions of the caller
			m.dial, m.hint = oneAtATime(m.dial), oneAtATime(m.hint)
		}
		all = append(all, m)
	}
	return all
}

// newResolver returns the resolver of t's name. It is nil for an IP address and a socket, and if a
// dial function of the caller takes the name.
func newResolver(t *target, s *settings) *resolver {
	if s.netDial != nil || t.host == "" || net.ParseIP(t.host) != nil {
		return nil
	}
	_, port, _ := net.SplitHostPort(t.address)
	return &resolver{host: t.host, port: port, lookup: s.lookup, every: s.lookEvery}
}

// dialer returns a function that connects to t. redigo's own Dial lets the TLS handshake and AUTH
// outlive the context, and does not support unix sockets in URLs.
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

// greet prepares the dialled connection for the handshake.
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
	c := link.NewConn(raw) // bounds its replies during the login, too
	if err := t.login(ctx, c, s); err != nil {
		c.Close()
		return nil, err
	}
	if s.Reauthenticate > 0 && !t.auth {
		c.Auth = func(ctx context.Context) ([]string, error) { return t.authWords(ctx, s) }
	}
	return c, nil
}

// unblock makes the socket of c non-blocking again, as package net created it. A dial function that
// asks for the descriptor of TCPConn.File, which is a common way to set an option, leaves the
// socket blocking. A Read then holds a thread until the server answers, and Close waits for it, so
// that a silent server could not be abandoned. unblock does not change a connection that wraps the
// socket in anything but TLS.
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
	// FileConn makes its result non-blocking. The mode belongs to the socket, which c shares.
	if same, err := net.FileConn(file); err == nil {
		same.Close()
	}
}

// tlsConfig returns the current configuration.
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

// explainTLS returns the likely reason of a failed handshake. A server without TLS hangs up, or
// answers in its own protocol.
func explainTLS(err error) error {
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, context.DeadlineExceeded): // Redis waits for the end of a line
		return fmt.Errorf("%w to TLS; %s", link.ErrHandshake, link.Schemes)
	case link.IsHangUp(err) || errors.As(err, &record):
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Err != nil {
			err = op.Err // omits the addresses
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

// authWords returns the arguments of AUTH, with the current credentials. It is empty for a
// connection without authentication.
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
	// errDialling is the error of an attempt while a function of the caller is busy with an earlier
	// one.
	errDialling = errors.New("a function of the program, for dialling, credentials or the TLS configuration, has not returned from an earlier attempt")
	errNoConn   = errors.New("the dial function returned neither a connection nor an error")
	errNoConfig = errors.New("the function of TLSFunc returned neither a configuration nor an error")
)

const tlsStage = "TLS"

// A stageKey is the context key of the current stage of a connection attempt made by oneAtATime.
type stageKey struct{}

// enter records the stage. The empty stage means the questions to the server.
func enter(ctx context.Context, stage string) {
	if at, ok := ctx.Value(stageKey{}).(*atomic.Pointer[string]); ok {
		at.Store(&stage)
	}
}

// oneAtATime makes a dial honour the context even if the caller's functions do not. A dial that
// takes too long continues on its own, and its connection is closed when it arrives. Until then
// there is no other dial, so that dials to a hanging server do not accumulate.
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
