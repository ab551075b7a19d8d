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

// A target is the address of one server, and the way to reach it.
type target struct {
	network  string // "tcp" or "unix"
	address  string
	host     string // for TLS
	tls      bool
	user     string
	password string
	auth     bool
	database int
	names    *resolver // of host; nil if the address needs no look-up
	standbys []*target // members that can take over; they differ only in the address
}

// errURL does not repeat the error of url.Parse, which quotes a part of the URL and perhaps of a
// password.
var errURL = errors.New("not a URL of the form redis://[user:password@]host[:port][/database]: " +
	"percent-encode special characters of a password, such as %40 for @")

var errQuery = errors.New("the only parameters after the ? are db=NUMBER, the database, and standby=HOST:PORT, " +
	"a server that takes over from this one, which must not have a unix:// URL: omit others, such as timeouts and protocol")

var errScheme = errors.New("the scheme is missing: write redis://host:port, rediss://host:port or unix:///path")

func parseURL(raw string) (*target, error) {
	switch scheme, rest, ok := strings.Cut(raw, "://"); {
	case !ok && !strings.HasPrefix(raw, "redis"): // a mistyped scheme begins with it
		return nil, errScheme
	case strings.Contains(rest, "://") && !strings.Contains(rest, "standby="):
		return nil, errors.New("several URLs in one, or a password that is not percent-encoded: pass a URL for each server")
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
		// The scheme of "secret:word@host" is a part of a password.
		return nil, errors.New("unknown scheme: use redis, rediss, valkey, valkeys or unix")
	}
	if u.User != nil {
		t.user = u.User.Username()
		// redis-cli treats a user without a password as a password, other clients as a user, and
		// redigo drops it.
		if t.password, t.auth = u.User.Password(); !t.auth {
			return nil, errors.New("a user name without a password: write user:password@, or :password@ for a password alone")
		}
	}
	q, err := url.ParseQuery(u.RawQuery)
	for parameter := range q {
		if parameter != "db" && (parameter != "standby" || t.network == "unix") {
			err = errQuery
		}
	}
	if err != nil {
		return nil, errQuery
	}
	path := strings.Trim(u.Path, "/")
	if t.network == "unix" {
		if u.Host != "" || path == "" {
			return nil, errors.New("unix needs an absolute path: unix:///path/to/socket")
		}
		t.address, path = u.Path, ""
	} else if err := t.setHost(u); err != nil {
		return nil, err
	}
	if err := t.setDatabase(path, q["db"]); err != nil {
		return nil, err
	}
	return t, t.setStandbys(q["standby"])
}

func (t *target) setHost(u *url.URL) error {
	t.host = cmp.Or(u.Hostname(), "localhost")
	if strings.Contains(u.Host, ",") {
		return errors.New("several hosts in one URL: pass a URL for each server")
	}
	if strings.Contains(t.host, ":") && !strings.HasPrefix(u.Host, "[") {
		return errors.New("several ports, or an IPv6 address without brackets: write host:port or [address]:port")
	}
	port := cmp.Or(u.Port(), "6379")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("the port must be between 1 and 65535")
	}
	t.address = net.JoinHostPort(strings.ToLower(t.host), port)
	return nil
}

func (t *target) setDatabase(path string, db []string) error {
	if len(db) > 1 || path != "" && len(db) > 0 && db[0] != path && db[0] != "" {
		return errors.New("two databases: write either /number or ?db=number")
	}
	n, err := strconv.ParseUint(cmp.Or(path, strings.Join(db, ""), "0"), 10, 31)
	if err != nil {
		return errors.New("the database must be a whole number, 0 or more")
	}
	t.database = int(n)
	return nil
}

func (t *target) setStandbys(of []string) error {
	var standbys []*target
	addresses := map[string]bool{t.address: true}
	for _, at := range of {
		u, err := url.Parse("redis://" + at)
		if err != nil || at == "" || u.Host != at {
			return errors.New("a standby must be host:port, without a scheme or a password: the URL's own apply")
		}
		standby := *t
		if err := standby.setHost(u); err != nil {
			return fmt.Errorf("standby: %w", err)
		}
		if addresses[standby.address] {
			return errors.New("a server is duplicated: it is a standby of itself, or of two servers")
		}
		addresses[standby.address] = true
		standbys = append(standbys, &standby)
	}
	t.standbys = standbys
	return nil
}

// all returns the target and its standbys.
func (t *target) all() []*target { return append([]*target{t}, t.standbys...) }

// name returns the name of the node in errors.
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
