package pool

import (
	"context"
	"fmt"

	"github.com/gomodule/redigo/redis"
)

// Dialer returns the name that Open gives the server at the URL, which holds no
// password, and how Open connects to it: authenticated, with its database
// selected, within DialTimeout. It is for tools that ask a server what locks
// need not know. dial may be called at any time, by several goroutines; the
// connections have no read or write timeouts and belong to the caller.
//
// An error of Dialer is about the URL or the options. One of dial says what is
// wrong with the server, in the terms of this package (ErrAuth), and names
// neither the server nor a password.
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
	return t.name(), func(ctx context.Context) (redis.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, s.dialTimeout)
		defer cancel()
		c, err := connect(ctx)
		if err != nil {
			return nil, explainDial(err)
		}
		return c, nil
	}, nil
}
