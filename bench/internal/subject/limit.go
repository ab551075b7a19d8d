package subject

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func limit() Spec {
	return Spec{
		Subject: record.Subject{
			Name: "limit", Title: "physical limit",
			Note: "No library: prebuilt requests over one raw connection a server, all callers in step, done at the answers of a majority, released by the servers' own compare-and-delete where they have one. No drawing of values, deadlines, renewal or faults: any of them ends it.",
		},
		Open: openLimit,
	}
}

// A limitClient has a raw connection to each server. A step writes the requests of all callers to
// all servers and reads the answers of a majority. It reads the answers of the other servers, which
// do the same work, one step later.
//
// A goroutine for each connection, independent callers, and groups of callers with connections of
// their own were measured, and are not faster.
type limitClient struct {
	callers int
	conns   []*limitConn
	behind  int // number of steps whose answers from the other servers are still unread
}

type limitConn struct {
	net.Conn
	in            *bufio.Reader
	sets, deletes []byte // requests of all callers
}

func openLimit(ctx context.Context, urls []string, cfg Config) (Client, error) {
	l := &limitClient{callers: cfg.Callers}
	for _, url := range urls {
		c, err := dialLimit(ctx, url)
		if err == nil {
			l.conns = append(l.conns, c.limitConn)
		}
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		run := rand.Text() // no other process has the same names
		for i := range cfg.Callers {
			key, value := fmt.Sprintf("bench:limit:%s:%d", run, i), rand.Text()
			c.sets = append(c.sets, request("SET", key, value, "NX", "PX", fmt.Sprint(cfg.TTL.Milliseconds()))...)
			c.deletes = append(c.deletes, request(c.release(key, value)...)...)
		}
	}
	return l, nil
}

// Acquire makes the limit a Client.
func (l *limitClient) Acquire(context.Context, string) (Lock, error) {
	return nil, errors.New("the limit has no locks")
}

func (l *limitClient) Close() (err error) {
	err = l.read(l.others(), l.behind)
	for _, c := range l.conns {
		c.Close()
	}
	return err
}

func (l *limitClient) others() []*limitConn { return l.conns[min(len(l.conns), len(l.conns)/2+1):] }

func (l *limitClient) Step() (began, acquired, released time.Time, err error) {
	began = time.Now()
	first := l.conns[:len(l.conns)-len(l.others())]
	for _, step := range []struct {
		done    *time.Time
		request func(*limitConn) []byte
	}{
		{&acquired, func(c *limitConn) []byte { return c.sets }},
		{&released, func(c *limitConn) []byte { return c.deletes }},
	} {
		for _, c := range l.conns {
			_, _ = c.Write(step.request(c)) // a connection that cannot be written to cannot be read either
		}
		if step.done == &acquired {
			if err := l.read(l.others(), l.behind); err != nil { // reads old answers while the servers work
				return began, acquired, released, err
			}
			l.behind = 0
		}
		l.behind++
		if err := l.read(first, 1); err != nil {
			return began, acquired, released, err
		}
		*step.done = time.Now()
	}
	return began, acquired, released, nil
}

// read reads the answers to some steps.
func (l *limitClient) read(conns []*limitConn, steps int) error {
	for _, c := range conns {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		for range steps * l.callers {
			line, err := c.in.ReadSlice('\n')
			if err == nil {
				err = answer(line)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.RemoteAddr(), err)
			}
		}
	}
	return nil
}

// answer checks one expected answer. Each answer is a line.
func answer(line []byte) error {
	switch string(line) {
	case "+OK\r\n", ":1\r\n":
		return nil
	case "$-1\r\n", ":0\r\n":
		return errors.New("a lock was refused, or gone before its release: use a longer --ttl")
	}
	return fmt.Errorf("unexpected answer %q", line)
}

// request returns a command in the format that Redis reads.
func request(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

const deleteScript = `if redis.call("GET",KEYS[1])==ARGV[1] then return redis.call("DEL",KEYS[1]) else return 0 end`

// deletes has the servers' own compare-and-delete commands, and a script for servers that lack or
// forbid these commands.
var deletes = []func(key, value string) []string{
	func(key, value string) []string { return []string{"DELEX", key, "IFEQ", value} }, // Redis 8.4
	func(key, value string) []string { return []string{"DELIFEQ", key, value} },       // Valkey 9
	func(key, value string) []string {
		return []string{"EVALSHA", fmt.Sprintf("%x", sha1.Sum([]byte(deleteScript))), "1", key, value}
	},
}

type limitDial struct {
	*limitConn
	release func(key, value string) []string // the first of deletes that the server accepts
}

// dialLimit connects, logs in, and tries the deletes on a key that does not exist.
func dialLimit(ctx context.Context, url string) (limitDial, error) {
	d := limitDial{limitConn: &limitConn{}}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := redis.DialURLContext(ctx, url, redis.DialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		d.Conn = conn
		return conn, err
	}))
	if err != nil {
		return d, err
	}
	_, err = redis.DoContext(r, ctx, "SCRIPT", "LOAD", deleteScript)
	for i := 0; i < len(deletes) && err == nil; i++ {
		d.release = deletes[i]
		words := d.release("bench:limit:", "")
		var refused redis.Error
		if _, err = redis.DoContext(r, ctx, words[0], redis.Args{}.AddFlat(words[1:])...); !errors.As(err, &refused) {
			break
		}
		if i < len(deletes)-1 {
			err = nil
		}
	}
	if err != nil {
		r.Close()
		return d, err
	}
	d.SetDeadline(time.Time{})
	d.in = bufio.NewReaderSize(d.Conn, 64<<10)
	return d, nil
}
