package doctor

import (
	"context"
	"net"
	"net/url"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool"
)

// A Server is one to be examined.
type Server struct {
	Name string // holds no secret
	Dial func(context.Context) (redis.Conn, error)

	Clear    bool // what is sent to it crosses a network unencrypted
	Password bool // and a password is sent
}

// Open returns the Server at a URL, with the options of package pool. Its errors
// do not repeat passwords.
func Open(raw string, opts ...pool.Option) (Server, error) {
	name, dial, err := pool.Dialer(raw, opts...)
	if err != nil {
		return Server{}, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		panic(err) // or Dialer had refused it
	}
	return Server{Name: name, Dial: dial, Clear: u.Scheme == "redis" && !loopback(u.Hostname()), Password: u.User != nil}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// Settings are those of the clients that lock on the servers.
type Settings struct {
	Timeout     time.Duration // for all that one server is asked, connecting included
	NodeTimeout time.Duration // how long a vote waits for a server
	MaxTTL      time.Duration // the longest of any lock, as far as the clients are told
	Prefix      string        // of all keys
	Guard       bool          // the memory guard is on
}
