package pool

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// A target is where and how to reach one server.
type target struct {
	network  string // "tcp" or "unix"
	address  string
	host     string // for TLS
	tls      bool
	user     string
	password string
	auth     bool
	database int
	standbys []*target // that take over from it: the same, but for the address
}

// errURL does not repeat the error of url.Parse, which quotes a part of the URL: perhaps half of a
// password.
var errURL = errors.New("not a URL of the form redis://[user:password@]host[:port][/database]; " +
	"special characters in a password must be percent-encoded")

var errScheme = errors.New("no scheme; write redis://host:port, rediss://host:port or unix:///path")

func parseURL(raw string) (*target, error) {
	switch scheme, rest, ok := strings.Cut(raw, "://"); {
	case !ok && !strings.HasPrefix(raw, "redis"): // with which a mistyped scheme begins
		return nil, errScheme
	case strings.Contains(rest, "://") && !strings.Contains(rest, "standby="):
		return nil, errors.New("several URLs in one, or a password that is not percent-encoded; each server has a URL of its own")
	case strings.ContainsAny(scheme, " \t\r\n"):
		return nil, errURL
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, errURL
	}
	t := &target{network: "tcp"}
	switch u.Scheme {
	case "redis", "valkey":
	case "rediss", "valkeys":
		t.tls = true
	case "unix":
		t.network = "unix"
	default:
		// The scheme of "secret:word@host" is a piece of a password.
		return nil, errors.New("unknown scheme; redis, rediss, valkey, valkeys and unix are possible")
	}
	if err := t.setUser(u.User); err != nil {
		return nil, err
	}
	if t.network == "unix" {
		return t, t.setSocket(u)
	}
	return t, t.setHost(u)
}

// setUser refuses a user without a password, which redis-cli takes for a password, other clients
// for a user, and redigo drops.
func (t *target) setUser(u *url.Userinfo) error {
	if u == nil {
		return nil
	}
	password, ok := u.Password()
	if !ok {
		return errors.New("a user name without a password; write user:password@, or :password@ for a password alone")
	}
	t.auth, t.user, t.password = true, u.Username(), password
	return nil
}

func (t *target) setHost(u *url.URL) error {
	t.host = cmp.Or(u.Hostname(), "localhost")
	if strings.Contains(u.Host, ",") {
		return errors.New("several hosts in one URL; each server has a URL of its own")
	}
	if strings.Contains(t.host, ":") && !strings.HasPrefix(u.Host, "[") {
		return errors.New("several ports, or an IPv6 address without brackets; write host:port or [address]:port")
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("the port must be between 1 and 65535")
	}
	t.address = net.JoinHostPort(strings.ToLower(t.host), port)
	q, err := url.ParseQuery(u.RawQuery)
	for parameter := range q {
		if parameter != "db" && parameter != "standby" {
			err = errors.New("unknown")
		}
	}
	if err != nil {
		return errors.New("the only parameters behind a ? are db, the number of the database, and standby, a server " +
			"that takes over from this one: ?standby=host:port; leave others out, as timeouts and protocol, which are no part of a URL here")
	}
	path, db := strings.Trim(u.Path, "/"), q.Get("db")
	if path != "" && db != "" && path != db || len(q["db"]) > 1 {
		return errors.New("two databases; write /number or ?db=number")
	}
	if err := t.setDatabase(cmp.Or(path, db)); err != nil {
		return err
	}
	return t.setStandbys(q["standby"])
}

func (t *target) setStandbys(of []string) error {
	addresses := map[string]bool{t.address: true}
	for _, at := range of {
		u, err := url.Parse("redis://" + at)
		if err != nil || at == "" || u.Host != at {
			return errors.New("a standby is written host:port, without a scheme or a password; these are as in the URL")
		}
		standby := *t
		standby.standbys = nil
		if err := standby.setHost(&url.URL{Host: at, Path: "/" + strconv.Itoa(t.database)}); err != nil {
			return fmt.Errorf("standby: %w", err)
		}
		if addresses[standby.address] {
			return errors.New("a server is named twice, as a standby of itself or of another")
		}
		addresses[standby.address] = true
		t.standbys = append(t.standbys, &standby)
	}
	return nil
}

// all returns the target and its standbys.
func (t *target) all() []*target { return append([]*target{t}, t.standbys...) }

func (t *target) setSocket(u *url.URL) error {
	if u.Host != "" || u.Path == "" || u.Path == "/" {
		return errors.New("unix needs an absolute path: unix:///path/to/socket")
	}
	t.address = u.Path
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(q) > 1 || len(q) == 1 && !q.Has("db") {
		return errors.New("the only parameter of a unix URL is db, the number of the database")
	}
	return t.setDatabase(q.Get("db"))
}

func (t *target) setDatabase(s string) error {
	if s == "" {
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return errors.New("the database must be a number from 0 up")
	}
	t.database = int(n)
	return nil
}

// name names the node in errors.
func (t *target) name() string {
	name := t.address
	for _, standby := range t.standbys {
		name += "+" + standby.address
	}
	if t.database == 0 {
		return name
	}
	return fmt.Sprintf("%s/%d", name, t.database)
}
