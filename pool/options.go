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
	netDial     func(ctx context.Context, network, address string) (net.Conn, error)        // nil: net.Dialer's
	tls         func(ctx context.Context, server string) (*tls.Config, error)               // nil: the defaults
	credentials func(ctx context.Context, server string) (user, password string, err error) // nil: those of the URL
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

// option returns an Option that is refused if it is wrong, and sets something otherwise.
func option(isWrong bool, why string, set func(*settings)) Option {
	return func(s *settings) error {
		if isWrong {
			return errors.New(why)
		}
		set(s)
		return nil
	}
}

// NetDial sets how connections to the URLs' servers are made: through a proxy, a tunnel, or with
// TCP options of the caller's. dial gets "tcp" and host:port, or "unix" and the path of the socket.
// TLS (of a rediss:// URL), AUTH and SELECT follow on the connection that it returns. Default:
// net.Dialer's DialContext.
//
// The nodes of Open call dial for several servers at the same time, and for two connections of a
// server: that of its requests and that of its hints. It should honour its context; one that does
// not keeps only its own connection waiting, and is not called again for that one until it returns.
// The function that Dialer returns calls dial whenever it is called, and relies on it to honour the
// context.
//
// Close of a connection must end its Read, or a server that is silent cannot be given up. That of a
// socket does not after dial has called TCPConn.File().Fd(), which makes the socket blocking. It is
// made non-blocking again, unless dial wraps it in anything but a tls.Conn: set options by
// TCPConn.SyscallConn or net.Dialer.Control instead.
//
// Package contrib/goredis makes nodes from the clients of go-redis, with their dialers.
func NetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return option(dial == nil, "NetDial(nil): omit the option for the default",
		func(s *settings) { s.netDial = dial })
}

// TLS sets the configuration for rediss:// URLs. Default: the system's roots and the URL's host
// name. A ServerName left empty becomes the URL's host. TLSFunc is for certificates and authorities
// that are replaced while the nodes are in use.
func TLS(c *tls.Config) Option {
	c = c.Clone() // of nil that is nil
	given := func(context.Context, string) (*tls.Config, error) { return c, nil }
	return option(c == nil, "TLS(nil): omit the option for the defaults", func(s *settings) { s.tls = given })
}

// TLSFunc is TLS with a configuration for each new connection: for files of certificates and
// authorities that are replaced. server is the host:port of the URL. What f returns is not changed, so
// f may return the same configuration until the files have changed. Connections that are open stay as
// they are.
//
// f is called within DialTimeout, which ctx has, and may be called for several connections at the same
// time. Its error is one of the server, which has no vote meanwhile, and may be shown and logged: keep
// secrets out of it.
func TLSFunc(f func(ctx context.Context, server string) (*tls.Config, error)) Option {
	return option(f == nil, "TLSFunc(nil): omit the option for the defaults", func(s *settings) { s.tls = f })
}

// Credentials has f give the user and the password of each connection to the servers whose URL has none:
// for passwords that end, as tokens of IAM, Entra and Vault do. server is the host:port of the URL, or
// the path of its socket. An empty user is the server's default user, and with an empty password the
// connection is not authenticated.
//
// f is called for each new connection, also when a server has ended one because its credentials were
// over, and within DialTimeout, which ctx has. A connection that a server leaves open goes on with the
// credentials that it began with, unless there is Reauthenticate. f may be called for several
// connections at the same time; it should return what it has until it must be renewed. Its error is one
// of the server, which has no vote meanwhile, and may be shown and logged: keep secrets out of it.
func Credentials(f func(ctx context.Context, server string) (user, password string, err error)) Option {
	return option(f == nil, "Credentials(nil): omit the option to use the credentials of the URLs",
		func(s *settings) { s.credentials = f })
}

// Reauthenticate asks the function of Credentials again that often, and sends AUTH with its answer on
// the connections that are open, so that no server ends one whose credentials are over with requests on
// it. Take less than the time for which credentials are still good when the function returns them: a
// minute for tokens that it renews five minutes before their end. At least 1 s; without this option a
// connection is authenticated once.
//
// AUTH travels among the requests, and needs no right. The second connection, on which hints come, is
// replaced instead, because a server takes no AUTH from a client that subscribes; waiters then look
// once more. An error of the function, and a server that refuses its answer, change nothing and are
// logged (see Log). What Dialer returns is left alone.
func Reauthenticate(every time.Duration) Option {
	return option(every < time.Second, fmt.Sprintf("Reauthenticate(%v): must be at least 1s, or servers do little else", every),
		func(s *settings) { s.Reauthenticate = every })
}

// DialTimeout bounds the making of a connection: dialling, TLS, and the first questions to the
// server. Default 1 s; it must be above zero.
func DialTimeout(d time.Duration) Option {
	return option(d <= 0, fmt.Sprintf("DialTimeout(%v): must be above zero", d), func(s *settings) { s.Dial = d })
}

// StallTimeout is how long a server may answer nothing at all, while requests are waiting, before
// its connection is given up and made anew. It is not how long callers wait: see
// redlock.NodeTimeout. Default 1 s; at least 10 ms.
func StallTimeout(d time.Duration) Option {
	return option(d < 10*time.Millisecond, fmt.Sprintf("StallTimeout(%v): must be at least 10ms, or every hiccup costs a connection", d),
		func(s *settings) { s.Stall = d })
}

// Log has the nodes log their doubts about their servers, each once, at level Warn: an eviction
// policy that may evict locks; an ACL that forbids the questions which would show a replica or a
// restart, or to end a broken connection, or what waiters need, or to release without a script.
// Default: nothing is logged. The log holds no secrets. It is written by a goroutine of its own, so a
// log that is slow holds up nothing; Close waits for it for a second at most.
func Log(l *slog.Logger) Option {
	return option(l == nil, "Log(nil): omit the option for silence", func(s *settings) { s.log = l })
}
