package subject

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

// A target is where and how to reach a server. Each library has URLs of its own
// kind; here all of them take what pool.Open takes.
type target struct {
	network, address string // as of net.Dial
	tls              *tls.Config
	user, password   string
	database         int
}

func parseURL(raw string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The parser quotes what it stumbled over, which may be half of a password.
		return nil, errors.New("not a URL like redis://host:port, rediss://host:port or unix:///path")
	}
	t := &target{network: "tcp", user: u.User.Username()}
	t.password, _ = u.User.Password()
	database := strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "unix":
		t.network, t.address, database = "unix", u.Path, u.Query().Get("db")
	case "rediss":
		t.tls = &tls.Config{ServerName: u.Hostname()}
		fallthrough
	case "redis":
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		t.address = net.JoinHostPort(u.Hostname(), port)
	default:
		return nil, errors.New("not a URL of redis://, rediss:// or unix://")
	}
	if database != "" {
		if t.database, err = strconv.Atoi(database); err != nil {
			return nil, errors.New("the database must be a number")
		}
	}
	return t, nil
}

func parseURLs(urls []string) ([]*target, error) {
	var targets []*target
	for i, raw := range urls {
		t, err := parseURL(raw)
		if err != nil {
			return nil, fmt.Errorf("URL %d: %w", i, err)
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		return nil, errors.New("no servers")
	}
	return targets, nil
}

func (t *target) dial(ctx context.Context) (net.Conn, error) {
	if t.tls != nil {
		return (&tls.Dialer{Config: t.tls}).DialContext(ctx, t.network, t.address)
	}
	return new(net.Dialer).DialContext(ctx, t.network, t.address)
}

// hide keeps the password out of an error: some servers and libraries repeat
// the command that failed.
func (t *target) hide(err error) error {
	if err != nil && t.password != "" && strings.Contains(err.Error(), t.password) {
		return errors.New("the server did not accept the connection; check the user and password in its URL")
	}
	return err
}
