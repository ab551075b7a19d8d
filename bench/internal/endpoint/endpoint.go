// Package endpoint reads URLs of servers, for the libraries under measurement, which each have URLs
// of their own kind, and for the benchmark's own connections. It takes what pool.Open takes.
package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// An Endpoint is the address of a server and its login, as go-redis has them.
type Endpoint struct{ *redis.Options }

// ParseAll reads the URLs of all servers, of which there must be one at least. Errors do not show
// them, because they may hold passwords.
func ParseAll(urls []string) ([]Endpoint, error) {
	var all []Endpoint
	for i, raw := range urls {
		if u, err := url.Parse(raw); err == nil && u.Scheme == "redis" && u.Hostname() == "" {
			raw = strings.Replace(raw, u.Host, "localhost"+u.Host, 1)
		}
		options, err := redis.ParseURL(raw)
		if err != nil {
			return nil, fmt.Errorf("URL %d: not of the form redis://[user:password@]host[:port][/database], rediss:// or unix:///path", i+1)
		}
		all = append(all, Endpoint{options})
	}
	if len(all) == 0 {
		return nil, errors.New("no servers")
	}
	return all, nil
}

// Dial connects, and does not log in.
func (e Endpoint) Dial(ctx context.Context) (net.Conn, error) {
	if e.TLSConfig != nil {
		return (&tls.Dialer{Config: e.TLSConfig}).DialContext(ctx, e.Network, e.Addr)
	}
	return new(net.Dialer).DialContext(ctx, e.Network, e.Addr)
}

// Hide keeps the password out of an error: some servers and libraries repeat the command that failed.
func (e Endpoint) Hide(err error) error {
	if err != nil && e.Password != "" && strings.Contains(err.Error(), e.Password) {
		return errors.New("the server did not accept the connection; check the user and password in its URL")
	}
	return err
}
