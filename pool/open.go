package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/redlock"
)

// Open returns a node for each URL:
//
//	redis://[user:password@]host[:port][/database]
//	rediss://...                                   with TLS
//	unix://[user:password@]/path/to/socket[?db=1]
//
// The port defaults to 6379, the database to 0. A password without a user is
// written ":password@"; special characters must be percent-encoded.
//
// Open waits until most of the servers are connected, or all have been tried,
// for at most DialTimeout, so that the first lock need not wait for connections. It
// does not fail for servers that are down: that is for the quorum to judge, and
// they are tried again in the background. Its errors are about the URLs, and
// never repeat a password. The nodes go to redlock.New, whose Locker closes them.
func Open(urls ...string) ([]redlock.Node, error) {
	return OpenWith(urls)
}

// OpenWith is Open with options, which hold for all of the nodes.
func OpenWith(urls []string, opts ...Option) ([]redlock.Node, error) {
	s, err := settle(opts)
	if err != nil {
		return nil, err
	}
	if len(urls) == 0 {
		return nil, errors.New("pool: no URLs; give one for each Redis server, such as redis://10.0.0.1:6379")
	}
	targets := make([]*target, len(urls))
	seen := map[string]int{}
	for i, u := range urls {
		t, err := parseURL(u)
		if err != nil {
			return nil, fmt.Errorf("pool: URL %d: %w", i+1, err)
		}
		if j, twice := seen[t.server()]; twice {
			return nil, fmt.Errorf("pool: URLs %d and %d name the same server, %s: one server must not vote twice", j, i+1, t.server())
		}
		seen[t.server()] = i + 1
		targets[i] = t
	}
	nodes := make([]*node, len(targets))
	for i, t := range targets {
		nodes[i] = newNode(t.name(), t.dialer(s), t.dialer(s), s)
	}
	awaitMost(nodes, s.dialTimeout)
	opened := make([]redlock.Node, len(nodes))
	for i, n := range nodes {
		opened[i] = n
	}
	return opened, nil
}

// awaitMost waits until more than half of the nodes are connected, or all have
// tried.
func awaitMost(nodes []*node, limit time.Duration) {
	tried := make(chan bool, len(nodes))
	for _, n := range nodes {
		go func() {
			<-n.first // every attempt ends within the DialTimeout
			tried <- n.connected()
		}()
	}
	late := time.After(limit)
	for left, connected := len(nodes), 0; left > 0 && connected <= len(nodes)/2; left-- {
		select {
		case ok := <-tried:
			if ok {
				connected++
			}
		case <-late:
			return
		}
	}
}

// FromDial returns a node whose connections are made by dial, which must give
// each time a new one, authenticated and with its database selected, to the
// same server. The node has it for itself until it breaks, and a second one while
// somebody waits for a lock. name stands for the
// server in errors.
//
// dial may be called for both of them at the same time. It should set a connect
// timeout and honour its context; it need not set
// read or write timeouts, which the node does without. FromDial does not wait
// for the first connection: requests wait for it, within their NodeTimeout.
func FromDial(name string, dial func(context.Context) (redis.Conn, error), opts ...Option) (redlock.Node, error) {
	s, err := settle(opts)
	switch {
	case err != nil:
		return nil, err
	case name == "":
		return nil, errors.New("pool: FromDial: the name is empty; give the server's address")
	case dial == nil:
		return nil, errors.New("pool: FromDial: the dial function is nil")
	}
	return newNode(name, foreignDialer(dial), foreignDialer(dial), s), nil
}

// FromPool returns a node that connects the way p does, by its DialContext or
// Dial. It does not borrow from p: one connection is used for all requests and
// for as long as it lasts, which a pool could not share. Neither this nor the
// one for those who wait is counted in p's MaxActive.
func FromPool(name string, p *redis.Pool, opts ...Option) (redlock.Node, error) {
	switch {
	case p == nil:
		return nil, errors.New("pool: FromPool: the pool is nil")
	case p.DialContext != nil:
		return FromDial(name, p.DialContext, opts...)
	case p.Dial != nil:
		return FromDial(name, func(context.Context) (redis.Conn, error) { return p.Dial() }, opts...)
	}
	return nil, errors.New("pool: FromPool: the pool has neither Dial nor DialContext")
}

// An Option changes a default of the nodes.
type Option func(*settings) error

type settings struct {
	tls         *tls.Config
	dialTimeout time.Duration
	stall       time.Duration
	log         *slog.Logger

	linger time.Duration // how long a listener outlives the last who waits
	ping   time.Duration // how often a listener looks whether its server is still there
}

func settle(opts []Option) (*settings, error) {
	s := &settings{
		dialTimeout: time.Second, stall: time.Second, log: slog.New(slog.DiscardHandler),
		linger: time.Second, ping: 3 * time.Second,
	}
	for _, o := range opts {
		if err := o(s); err != nil {
			return nil, fmt.Errorf("pool: option %w", err)
		}
	}
	return s, nil
}

// TLS sets the configuration for rediss:// URLs. Default: the system's roots
// and the URL's host name. A ServerName left empty becomes the URL's host.
func TLS(c *tls.Config) Option {
	return func(s *settings) error {
		if c == nil {
			return errors.New("TLS(nil): leave the option out for the defaults")
		}
		s.tls = c.Clone()
		return nil
	}
}

// DialTimeout bounds the making of a connection: dialling, TLS, and the first
// questions to the server. Default 1 s; it must be above zero.
func DialTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("DialTimeout(%v): must be above zero", d)
		}
		s.dialTimeout = d
		return nil
	}
}

// StallTimeout is how long a server may answer nothing at all, while requests
// are waiting, before its connection is given up and made anew. It is not how
// long callers wait: see redlock.NodeTimeout. Default 1 s; at least 10 ms.
func StallTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d < 10*time.Millisecond {
			return fmt.Errorf("StallTimeout(%v): must be at least 10ms, or every hiccup costs a connection", d)
		}
		s.stall = d
		return nil
	}
}

// Log has the nodes tell what they do not like about their servers, each thing
// once, at level Warn: an eviction policy that may evict locks, an ACL that
// forbids the questions which would show a replica or a restart. Default: nobody
// is told. Nothing secret is logged.
func Log(l *slog.Logger) Option {
	return func(s *settings) error {
		if l == nil {
			return errors.New("Log(nil): leave the option out for silence")
		}
		s.log = l
		return nil
	}
}
