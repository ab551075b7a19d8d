package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	// readyTick is short compared with a server's start (20 to 100 ms), so that waiting adds little
	// to it.
	readyTick = 10 * time.Millisecond
	// tryTimeout limits one PING, so that one hanging try does not use all the time. On a busy
	// machine a server may stand still for seconds.
	tryTimeout = 5 * time.Second
)

// AwaitReady sends PINGs to the server at rawURL until the server answers, ctx ends, or dead
// returns the reason it never will. dead is nil if the caller cannot know.
func AwaitReady(ctx context.Context, rawURL string, dead func() error) error {
	err := await(ctx, dead, func(ctx context.Context) error { return ping(ctx, rawURL) })
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s does not answer PING: %w", display(rawURL), err)
	}
	return err
}

// await tries until there is no error, ctx ends, or dead returns the reason every try will fail.
func await(ctx context.Context, dead func() error, try func(context.Context) error) error {
	tick := time.NewTicker(readyTick)
	defer tick.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		// A try that the end of ctx cut short has a less helpful error than the try before.
		if last == nil || !ended(ctx) {
			last = err
		}
		if dead != nil {
			if cause := dead(); cause != nil {
				return cause
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", last, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// ended reports whether ctx has ended. It notices the end a moment before ctx.Err, because a dial
// that ran into the deadline can return before the context's own timer.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// ping makes a connection, authenticates with the password in the URL, and expects a PONG.
func ping(ctx context.Context, rawURL string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	c, err := dial(ctx, rawURL)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = redis.DoContext(c, ctx, "PING")
	return err
}

// dial connects to a server, and authenticates with the password in the URL. It does not use
// redigo's DialURL, because DialURL does not support Unix sockets.
func dial(ctx context.Context, rawURL string) (redis.Conn, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	network, address := "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379"))
	if u.Scheme == "unix" {
		network, address = "unix", u.Path
	}
	password, _ := u.User.Password()
	c, err := redis.DialContext(ctx, network, address,
		redis.DialUsername(u.User.Username()), redis.DialPassword(password), redis.DialUseTLS(u.Scheme == "rediss"),
		redis.DialTLSHandshakeTimeout(tryTimeout), redis.DialReadTimeout(tryTimeout), redis.DialWriteTimeout(tryTimeout))
	if reply := redis.Error(""); errors.As(err, &reply) {
		// The error has only the code, because a server that does not know AUTH repeats the
		// password.
		code, _, _ := strings.Cut(string(reply), " ")
		return nil, fmt.Errorf("it does not accept the user or password (%s)", code)
	}
	return c, err
}

func parseURL(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// err quotes the URL with its password.
		return nil, errors.New("it cannot be parsed (not shown, as it may hold a password)")
	}
	switch u.Scheme {
	case "redis", "rediss", "unix":
		return u, nil
	default:
		return nil, fmt.Errorf("scheme %q is none of redis, rediss, unix", u.Scheme)
	}
}

// display returns the URL for messages, without user and password. It also omits the query, because
// some clients take passwords from it.
func display(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "(a URL that cannot be parsed)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
