package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redquorum/redquorum/pool/internal/link"
)

// An Option changes a default of the nodes.
type Option func(*settings) error

type settings struct {
	netDial     func(ctx context.Context, network, address string) (net.Conn, error)        // nil for net.Dialer
	tls         func(ctx context.Context, server string) (*tls.Config, error)               // nil for the defaults
	credentials func(ctx context.Context, server string) (user, password string, err error) // nil for the credentials in the URL
	lookup      func(ctx context.Context, host string) ([]string, error)
	lookEvery   time.Duration // pause between two look-ups of the name of an open connection
	log         *slog.Logger
	link.Times
}

func settle(opts []Option) (*settings, error) {
	s := &settings{
		lookup: net.DefaultResolver.LookupHost, lookEvery: lookEvery,
		log:   slog.New(slog.DiscardHandler),
		Times: link.Times{Dial: time.Second, Stall: time.Second, Linger: time.Second, Ping: 3 * time.Second, Idle: 10 * time.Second, AskAgain: 10 * time.Minute},
	}
	for _, o := range opts {
		if err := o(s); err != nil {
			return nil, fmt.Errorf("pool: option %w", err)
		}
	}
	if s.Reauthenticate > 0 && s.credentials == nil {
		return nil, errors.New("pool: option Reauthenticate: needs the option Credentials")
	}
	return s, nil
}

// option returns an Option that returns an error if isWrong, and otherwise calls set.
func option(isWrong bool, why string, set func(*settings)) Option {
	return func(s *settings) error {
		if isWrong {
			return errors.New(why)
		}
		set(s)
		return nil
	}
}

// NetDial sets the function that connects to the URLs' servers: through a proxy, a tunnel, or with
// TCP options of the caller. dial gets "tcp" and host:port, or "unix" and the path of the socket.
// TLS (of a rediss:// URL), AUTH and SELECT follow on the connection that it returns. Default:
// net.Dialer's DialContext.
//
// The nodes of Open call dial for several servers at the same time, and for two connections of a
// server: one for requests and one for hints. dial should honour its context. If it does not, only
// its own connection waits, and dial is not called again for that connection until it returns. The
// function returned by Dialer calls dial whenever it is called, and relies on it to honour the
// context.
//
// Close of a connection must end its Read, because otherwise a silent server cannot be abandoned.
// Close of a socket does not do so after dial has called TCPConn.File().Fd(), which makes the
// socket blocking. The node makes it non-blocking again, unless dial wraps it in anything but a
// tls.Conn: set options with TCPConn.SyscallConn or net.Dialer.Control instead.
//
// Package contrib/goredis creates nodes from the clients of go-redis, with their dialers.
func NetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return option(dial == nil, "NetDial(nil): omit the option for the default",
		func(s *settings) { s.netDial = dial })
}

// TLS sets the configuration for rediss:// URLs. Default: the system's roots and the URL's host
// name. An empty ServerName becomes the URL's host. Use TLSFunc for certificates and authorities
// that are replaced while the nodes are in use.
func TLS(c *tls.Config) Option {
	c = c.Clone() // Clone returns nil for nil
	given := func(context.Context, string) (*tls.Config, error) { return c, nil }
	return option(c == nil, "TLS(nil): omit the option for the defaults", func(s *settings) { s.tls = given })
}

// TLSFunc is like TLS, with a configuration for each new connection: for files of certificates and
// authorities that are replaced. server is the host:port of the URL. The result of f is not
// changed, so f may return the same configuration until the files have changed. Open connections
// stay as they are.
//
// f is called within DialTimeout, which is the deadline of ctx, and may be called for several
// connections at the same time. Its error counts as a fault of the server, which has no vote during
// that time. The error may be shown and logged: keep secrets out of it.
func TLSFunc(f func(ctx context.Context, server string) (*tls.Config, error)) Option {
	return option(f == nil, "TLSFunc(nil): omit the option for the defaults", func(s *settings) { s.tls = f })
}

// Credentials sets a function that returns the user and the password of each connection to servers
// with neither in their URL. It is for passwords that expire, such as tokens of IAM, Entra and
// Vault. server is the host:port of the URL, or the path of its socket. An empty user is the
// server's default user. If the password is empty, too, the connection is not authenticated.
//
// f is called for each new connection, even if a server has ended the last one because its
// credentials had expired, and within DialTimeout, which is the deadline of ctx. A connection that
// a server leaves open keeps its first credentials, unless Reauthenticate is set. f may be called
// for several connections at the same time; it should return the same credentials until they must
// be renewed. Its error counts as a fault of the server, which has no vote during that time. The
// error may be shown and logged: keep secrets out of it.
func Credentials(f func(ctx context.Context, server string) (user, password string, err error)) Option {
	return option(f == nil, "Credentials(nil): omit the option to use the credentials of the URLs",
		func(s *settings) { s.credentials = f })
}

// Reauthenticate calls the function of Credentials again at this interval, and sends AUTH with its
// answer on the open connections, so that no server ends a connection with requests because its
// credentials have expired. Choose less than the time for which credentials are still valid when
// the function returns them: a minute for tokens that it renews five minutes before their end. At
// least 1 s; without this option a connection is authenticated once.
//
// AUTH travels among the requests, and needs no right. The second connection, for hints, is
// replaced instead, because a server accepts no AUTH from a client that subscribes; waiters then
// look once more. If the function fails, or a server refuses its answer, nothing changes and the
// error is logged (see Log). Connections of Dialer are not affected.
func Reauthenticate(every time.Duration) Option {
	return option(every < time.Second, fmt.Sprintf("Reauthenticate(%v): must be at least 1s, or servers do little else", every),
		func(s *settings) { s.Reauthenticate = every })
}

// DialTimeout limits the time of a connection attempt: dialling, TLS, and the first questions to
// the server. Default 1 s; it must be above zero.
func DialTimeout(d time.Duration) Option {
	return option(d <= 0, fmt.Sprintf("DialTimeout(%v): must be above zero", d), func(s *settings) { s.Dial = d })
}

// StallTimeout is the time without any answer, while requests are waiting, after which a connection
// is replaced. It is not the time for which callers wait: see redlock.NodeTimeout. Default 1 s; at
// least 10 ms.
func StallTimeout(d time.Duration) Option {
	return option(d < 10*time.Millisecond, fmt.Sprintf("StallTimeout(%v): must be at least 10ms, or every hiccup costs a connection", d),
		func(s *settings) { s.Stall = d })
}

// Log makes the nodes log their doubts about their servers, each once, at level Warn. A doubt is an
// eviction policy that may evict locks, or an ACL that forbids useful commands: those that reveal a
// replica or a restart, that end a broken connection, that serve waiters, or that release without a
// script. Default: no log. The log contains no secrets. A separate goroutine writes it, so a slow
// log delays no other work; Close waits for it for at most a second.
func Log(l *slog.Logger) Option {
	return option(l == nil, "Log(nil): omit the option for silence", func(s *settings) { s.log = l })
}
