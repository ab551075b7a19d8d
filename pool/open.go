package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/link"
)

// A Node is one independent Redis server, for redlock.New or a redlock.Group. Only this package
// creates nodes; for servers that are reached in another way, use FromDial.
type Node = protocol.Node

// Open returns a node for each URL:
//
//	redis://[user:password@]host[:port][/database] also valkey://, and ?db= for the database
//	rediss://...                                   with TLS; also valkeys://
//	unix://[user:password@]/path/to/socket[?db=1]
//	redis://host:port?standby=host:port            one node that fails over: see the package
//
// The port defaults to 6379, the database to 0. A password without a user is written ":password@";
// special characters must be percent-encoded.
//
// Open waits until most of the servers are connected, or all have been tried, for at most
// DialTimeout, so that the first lock need not wait for connections. It succeeds even if servers
// are down, because locks need only a quorum; it retries them in the background. Its errors concern
// the URLs, and never repeat a password. Pass the nodes to redlock.New, whose Locker closes them.
func Open(urls ...string) ([]Node, error) {
	return OpenWith(urls)
}

// OpenWith is like Open, with options that apply to all of the nodes.
func OpenWith(urls []string, opts ...Option) ([]Node, error) {
	s, err := settle(opts)
	if err != nil {
		return nil, err
	}
	if len(urls) == 0 {
		return nil, errors.New("pool: no URLs: pass one for each Redis server, such as redis://10.0.0.1:6379")
	}
	targets := make([]*target, len(urls))
	seen := map[string]int{}
	for i, u := range urls {
		t, err := parseURL(u)
		if err != nil {
			return nil, fmt.Errorf("pool: URL %d: %w", i+1, err)
		}
		for _, one := range t.all() {
			if j, twice := seen[one.address]; twice { // regardless of the database
				return nil, fmt.Errorf("pool: URLs %d and %d name the same server, %s: one server must not vote twice",
					j, i+1, one.address)
			}
			seen[one.address] = i + 1
		}
		targets[i] = t
	}
	nodes := make([]Node, len(targets))
	for i, t := range targets {
		nodes[i] = newNode(t.name(), t.members(s), s)
	}
	awaitMost(nodes, s.Dial)
	return nodes, nil
}

// awaitMost waits until more than half of the nodes are connected, or all have tried.
func awaitMost(nodes []Node, limit time.Duration) {
	tried := make(chan bool, len(nodes))
	for _, n := range nodes {
		n := n.(*node)
		go func() {
			<-n.Tried() // closed within DialTimeout
			tried <- n.Connected()
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

// FromDial returns a node whose connections are made by dial. Each call must return a new redigo
// connection to the same server, authenticated and with its database selected. The node uses it
// exclusively until it breaks, and a second one while a caller waits for a lock or holds one. name
// is the name of the server in errors. The options about URLs, TLS and NetDial, have no effect.
//
// To lock on the servers of a redigo pool p, pass p.DialContext: the node needs a connection that
// it does not share, so it cannot borrow one.
//
// dial may be called for both connections at the same time. It should set a connect timeout and
// honour its context. It need not set read or write timeouts, which the node does not use. FromDial
// does not wait for the first connection: requests wait for it, within their NodeTimeout.
//
// The size of replies is limited on connections made by Open, but not on those made by dial,
// because redigo reads them before the node does. If the length of a reply makes redigo panic, only
// the connection ends, as with any error, except while dial itself reads, as redis.Dial does with a
// password. A reply of gigabytes takes the process's memory. Use Open for servers that are not
// trusted, with NetDial if they are not reached directly.
func FromDial(name string, dial func(context.Context) (redis.Conn, error), opts ...Option) (Node, error) {
	s, err := settle(opts)
	switch {
	case err != nil:
		return nil, err
	case name == "":
		return nil, errors.New("pool: FromDial: the name is empty: pass the server's address")
	case dial == nil:
		return nil, errors.New("pool: FromDial: the dial function is nil")
	}
	return newNode(name, members{{name, oneAtATime(dial), oneAtATime(dial)}}, s), nil
}

// Dialer returns the name that Open gives the server at the URL, without the password, and a
// function that connects to it like Open: authenticated, with its database selected, within
// DialTimeout. It is for tools with questions that locks do not ask. dial may be called at any
// time, by several goroutines; the connections have no read or write timeouts and belong to the
// caller. A reply of more than 4 MiB, or with a string of more than 1 MiB, ends its connection with
// ErrReplyTooLarge.
//
// An error of Dialer concerns the URL or the options. An error of dial describes the fault of the
// server, as an error of this package (ErrAuth), and names neither the server nor a password.
func Dialer(url string, opts ...Option) (name string, dial func(context.Context) (redis.Conn, error), err error) {
	s, err := settle(opts)
	if err != nil {
		return "", nil, err
	}
	t, err := parseURL(url)
	if err != nil {
		return "", nil, fmt.Errorf("pool: URL: %w", err)
	}
	connect := t.dialer(s)
	if len(t.standbys) > 0 {
		connect = t.members(s).dialPrimary
	}
	return t.name(), func(ctx context.Context) (redis.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, s.Dial)
		defer cancel()
		c, err := connect(ctx)
		if err != nil {
			return nil, link.Explain(err)
		}
		// A server that hangs up first sends the reason. A loading server answers TIME.
		if err := link.Ask(ctx, c, link.Question{Name: "TIME"}, link.Question{Name: "TIME"}); err != nil {
			c.Close()
			return nil, link.Explain(err)
		}
		return c, nil
	}, nil
}
