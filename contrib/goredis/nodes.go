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

// Nodes returns a node for the server of each client, for redlock.New or a redlock.Group, whose
// Locker closes them. It does not use the clients' connections, and does not close the clients.
//
// It waits for connections as pool.OpenWith does, and takes the same options for all nodes:
// pool.DialTimeout, pool.StallTimeout, pool.Reauthenticate and pool.Log. pool.NetDial and
// pool.Credentials take the place of what the clients have, and pool.TLS has no effect. Errors are
// about the clients and the options, and not about servers that are down; they hold no password.
func Nodes(clients []*redis.Client, opts ...pool.Option) ([]pool.Node, error) {
	if len(clients) == 0 {
		return nil, errors.New("goredis: no clients: pass one for each Redis server")
	}
	urls := make([]string, len(clients))
	servers := make(map[string]*redis.Options, len(clients)) // by their addresses
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

// addressOf returns the address that package pool gives the server of the client, or why that is no
// node: what the client is.
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
	address, _, err := pool.Dialer(urlOf(o, 0)) // without a database the name is the address
	if err != nil {
		return "", fmt.Errorf("has an Addr that is not host:port: %w", err) // a URL there may hold a password
	}
	return address, nil
}

// urlOf returns the URL of the server, without credentials. It has no TLS, which the Dialer does.
func urlOf(o *redis.Options, database int) string {
	u := url.URL{Scheme: "redis", Host: o.Addr, RawQuery: "db=" + strconv.Itoa(database)}
	if o.Network == "unix" {
		u.Scheme, u.Host, u.Path = "unix", "", o.Addr
	}
	return u.String()
}

// credentials returns those of a new connection, in the order in which go-redis looks for them.
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

// current subscribes for as long as it asks. A subscription that stayed would keep the provider at
// work when the Locker is closed, of which nothing tells this package.
func current(p auth.StreamingCredentialsProvider) (user, password string, err error) {
	c, unsubscribe, err := p.Subscribe(new(listener))
	if err != nil {
		return "", "", err
	}
	if unsubscribe != nil { // without which go-redis does, too
		unsubscribe() // its error is no reason to be without the credentials
	}
	user, password = c.BasicAuth()
	return user, password, nil
}

// A listener ignores new credentials, which the node asks for. It is not empty, so that each has an
// address of its own, by which providers tell listeners apart.
type listener struct{ _ byte }

func (*listener) OnNext(auth.Credentials) {}
func (*listener) OnError(error)           {}
