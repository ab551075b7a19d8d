package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/redquorum/redquorum/pool"
)

// failoverAddr is the Addr of all clients of redis.NewFailoverClient, whose Dialer asks Sentinel.
const failoverAddr = "FailoverClient"

// Nodes returns a node for the server of each client, for redlock.New or a redlock.Group. The
// Locker closes the nodes. Nodes neither uses the clients' connections nor closes the clients.
//
// Nodes waits for connections like pool.OpenWith, and applies the options to all nodes:
// pool.DialTimeout, pool.StallTimeout, pool.Reauthenticate and pool.Log. pool.NetDial and
// pool.Credentials override the settings of the clients, and pool.TLS has no effect. Errors concern
// the clients and the options, but not servers that are down. They contain no passwords.
func Nodes(clients []*redis.Client, opts ...pool.Option) ([]pool.Node, error) {
	if len(clients) == 0 {
		return nil, errors.New("goredis: no clients: pass one for each Redis server")
	}
	urls := make([]string, len(clients))
	servers := make(map[string]*redis.Options, len(clients)) // by address
	for i, c := range clients {
		address, err := addressOf(c)
		if err != nil {
			return nil, fmt.Errorf("goredis: client %d %w", i+1, err)
		}
		o := c.Options()
		urls[i], servers[address] = urlOf(o, o.DB), o
	}
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		o := servers[address]
		return o.Dialer(ctx, o.Network, o.Addr)
	}
	login := func(ctx context.Context, address string) (user, password string, err error) {
		return credentials(ctx, servers[address])
	}
	return pool.OpenWith(urls, append([]pool.Option{pool.NetDial(dial), pool.Credentials(login)}, opts...)...)
}

// addressOf returns package pool's address of the client's server. The error is the predicate of a
// sentence about the client.
func addressOf(c *redis.Client) (string, error) {
	if c == nil {
		return "", errors.New("is nil")
	}
	o := c.Options()
	switch {
	case o.Addr == failoverAddr:
		return "", errors.New("is of NewFailoverClient, which cannot be a node, because Sentinel may have promoted one server " +
			"while another still grants locks: open redis://host:port?standby=host:port by package pool instead")
	case o.Network == "unix" && !strings.HasPrefix(o.Addr, "/"):
		return "", fmt.Errorf("is of the socket %.100q, which is not an absolute path", o.Addr)
	}
	address, _, err := pool.Dialer(urlOf(o, 0)) // without a database, the name is the address
	if err != nil {
		return "", fmt.Errorf("has an Addr that is not host:port: %w", err) // a URL there may hold a password
	}
	return address, nil
}

// urlOf returns the URL of the server, without credentials. It has no TLS, because the Dialer does
// that.
func urlOf(o *redis.Options, database int) string {
	u := url.URL{Scheme: "redis", Host: o.Addr, RawQuery: "db=" + strconv.Itoa(database)}
	if o.Network == "unix" {
		u.Scheme, u.Host, u.Path = "unix", "", o.Addr
	}
	return u.String()
}

// credentials returns the credentials of a new connection, in go-redis' order of preference.
func credentials(ctx context.Context, o *redis.Options) (user, password string, err error) {
	switch {
	case o.StreamingCredentialsProvider != nil:
		return current(o.StreamingCredentialsProvider)
	case o.CredentialsProviderContext != nil:
		return o.CredentialsProviderContext(ctx)
	case o.CredentialsProvider != nil:
		user, password = o.CredentialsProvider()
		return user, password, nil
	}
	return o.Username, o.Password, nil
}

// current subscribes only during the call. A lasting subscription would keep the provider busy
// after the Locker was closed, because this package does not notice the closing.
func current(p auth.StreamingCredentialsProvider) (user, password string, err error) {
	c, unsubscribe, err := p.Subscribe(new(listener))
	if err != nil {
		return "", "", err
	}
	if unsubscribe != nil { // go-redis tolerates nil, too
		unsubscribe() // the credentials are usable even if this fails
	}
	user, password = c.BasicAuth()
	return user, password, nil
}

// A listener ignores new credentials, because the node asks for them. It is not empty, because
// providers distinguish listeners by their addresses.
type listener struct{ _ byte }

func (*listener) OnNext(auth.Credentials) {}
func (*listener) OnError(error)           {}
