package servers

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// A target is where a server is and how to log in, as redlock's pool reads URLs.
type target struct {
	scheme         string // redis, rediss or unix
	address        string
	user, password string
	database       string // "": the first
}

// errURL does not show the URL: it may hold a password.
var errURL = errors.New("not a URL of the form redis://[user:password@]host[:port][/database], rediss:// or unix:///path")

func parseURL(raw string) (target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return target{}, errURL
	}
	t := target{scheme: u.Scheme, user: u.User.Username()}
	t.password, _ = u.User.Password()
	switch u.Scheme {
	case "redis", "rediss":
		host, port := u.Hostname(), u.Port()
		if host == "" {
			host = "localhost"
		}
		if port == "" {
			port = "6379"
		}
		t.address, t.database = net.JoinHostPort(host, port), strings.TrimPrefix(u.Path, "/")
	case "unix":
		t.address, t.database = u.Path, u.Query().Get("db")
	default:
		return target{}, errURL
	}
	return t, nil
}
