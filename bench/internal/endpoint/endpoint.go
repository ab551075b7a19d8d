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
	"strconv"
	"strings"
)

// An Endpoint is the address of a server and its login.
type Endpoint struct {
	Network, Address string // as of net.Dial
	TLS              *tls.Config
	User, Password   string
	Database         int
}

// errURL does not show the URL, because it may hold a password.
var errURL = errors.New("not a URL of the form redis://[user:password@]host[:port][/database], " +
	"rediss:// or unix:///path")

// Parse reads one URL.
func Parse(raw string) (*Endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errURL
	}
	e := &Endpoint{Network: "tcp", User: u.User.Username()}
	e.Password, _ = u.User.Password()
	database := strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "unix":
		e.Network, e.Address, database = "unix", u.Path, u.Query().Get("db")
	case "redis", "rediss":
		host, port := u.Hostname(), u.Port()
		if host == "" {
			host = "localhost"
		}
		if port == "" {
			port = "6379"
		}
		e.Address = net.JoinHostPort(host, port)
		if u.Scheme == "rediss" {
			e.TLS = &tls.Config{ServerName: host}
		}
	default:
		return nil, errURL
	}
	if database != "" {
		if e.Database, err = strconv.Atoi(database); err != nil {
			return nil, errors.New("the database must be a number")
		}
	}
	return e, nil
}

// ParseAll reads the URLs of all servers, of which there must be one at least.
func ParseAll(urls []string) ([]*Endpoint, error) {
	var all []*Endpoint
	for i, raw := range urls {
		e, err := Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("URL %d: %w", i, err)
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, errors.New("no servers")
	}
	return all, nil
}

// Dial connects, and does not log in.
func (e *Endpoint) Dial(ctx context.Context) (net.Conn, error) {
	if e.TLS != nil {
		return (&tls.Dialer{Config: e.TLS}).DialContext(ctx, e.Network, e.Address)
	}
	return new(net.Dialer).DialContext(ctx, e.Network, e.Address)
}

// Hide keeps the password out of an error: some servers and libraries repeat the command that failed.
func (e *Endpoint) Hide(err error) error {
	if err != nil && e.Password != "" && strings.Contains(err.Error(), e.Password) {
		return errors.New("the server did not accept the connection; check the user and password in its URL")
	}
	return err
}
