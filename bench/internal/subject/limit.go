package subject

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
)

func limit() Spec {
	return Spec{
		Subject: record.Subject{
			Name: "limit", Title: "physical limit",
			Note: "No library: prebuilt requests over one raw connection a server, all callers in step, done at the answers of a majority, released by the servers' own compare-and-delete where they have one. No drawing of values, deadlines, renewal or faults: any of them ends it.",
		},
		Drive: drive,
	}
}

// settle bounds the time in which the step under way is finished when the run ends.
const settle = time.Second

// drive takes one step of all callers at a time: it writes to every server in one go, and reads the
// answers of a majority. Those of the other servers, which do the same work, are read a cycle later.
//
// Other forms were measured: a goroutine for each connection, callers that go on one by one, and
// several groups of callers with connections of their own are no faster.
func drive(parent context.Context, urls []string, cfg Config, cycled Cycled) error {
	endpoints, err := endpoint.ParseAll(urls)
	if err != nil {
		return err
	}
	l := &limitRun{callers: cfg.Callers}
	defer func() {
		for _, c := range l.conns {
			c.Close()
		}
	}()
	for _, e := range endpoints {
		c, err := limitConnect(parent, e)
		if err != nil {
			return fmt.Errorf("limit: %s: %w", e.Addr, err)
		}
		l.conns = append(l.conns, c)
	}
	l.prepare(cfg.TTL)
	stop := context.AfterFunc(parent, func() {
		for _, c := range l.conns {
			c.SetDeadline(time.Now().Add(settle))
		}
	})
	defer stop()
	err = l.run(parent, cycled)
	if parent.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // the time to settle was not enough
	}
	return err
}

// A limitRun is the connections of drive, on which an even step sets the keys of all callers, and an
// odd one deletes them.
type limitRun struct {
	callers int
	conns   []*limitConn
}

func (l *limitRun) prepare(ttl time.Duration) {
	run, px := rand.Text(), strconv.FormatInt(ttl.Milliseconds(), 10) // no other process has the same names
	for i := range l.callers {
		key, value := fmt.Sprintf("bench:limit:%s:%d", run, i), rand.Text()
		for _, c := range l.conns {
			c.sets = append(c.sets, limitRequest("SET", key, value, "NX", "PX", px)...)
			c.deletes = append(c.deletes, limitRequest(c.release(key, value)...)...)
		}
	}
}

// A limitCycle is one of all callers.
type limitCycle struct{ began, acquired, released time.Time }

func (l *limitRun) run(ctx context.Context, cycled Cycled) error {
	quorum := len(l.conns)/2 + 1
	first, others := l.conns[:quorum], l.conns[quorum:]
	finish := func(c limitCycle) error {
		for i := range l.callers {
			cycled(i, c.began, c.acquired.Sub(c.began), c.released.Sub(c.acquired))
		}
		return l.read(others, 2)
	}
	var last limitCycle
	for ctx.Err() == nil {
		c := limitCycle{began: time.Now()}
		l.send(func(c *limitConn) []byte { return c.sets })
		if !last.began.IsZero() {
			if err := finish(last); err != nil { // while the servers work
				return err
			}
		}
		if err := l.read(first, 1); err != nil {
			return err
		}
		c.acquired = time.Now()
		l.send(func(c *limitConn) []byte { return c.deletes })
		if err := l.read(first, 1); err != nil {
			return err
		}
		c.released = time.Now()
		last = c
	}
	if last.began.IsZero() {
		return nil
	}
	return finish(last)
}

// send writes to all servers, and waits for one that is so far behind that it takes no more. What
// cannot be written cannot be answered either, so that read returns the error.
func (l *limitRun) send(batch func(*limitConn) []byte) {
	for _, c := range l.conns {
		_, _ = c.Write(batch(c))
	}
}

// read takes the answers to some steps of all callers.
func (l *limitRun) read(conns []*limitConn, steps int) error {
	for _, c := range conns {
		for range steps * l.callers {
			line, err := c.in.ReadSlice('\n')
			if err == nil {
				err = limitAnswer(line)
			}
			if err != nil {
				return fmt.Errorf("limit: %s: %w", c.address, err)
			}
		}
	}
	return nil
}

// limitAnswer reads one of the answers that can come, each of which is a line.
func limitAnswer(line []byte) error {
	switch string(line) {
	case "+OK\r\n", ":1\r\n":
		return nil
	case "$-1\r\n", ":0\r\n":
		return errors.New("a lock was refused, or gone before its release: the TTL is too short for these servers")
	}
	return fmt.Errorf("it answers %q", line)
}

// limitRequest is a command as Redis reads it.
func limitRequest(args ...string) []byte {
	b := append([]byte("*"+strconv.Itoa(len(args))), "\r\n"...)
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

const limitScript = `if redis.call("GET",KEYS[1])==ARGV[1] then return redis.call("DEL",KEYS[1]) else return 0 end`

var limitScriptSHA = fmt.Sprintf("%x", sha1.Sum([]byte(limitScript)))

// A limitDelete is the words of a compare-and-delete.
type limitDelete func(key, value string) []string

// limitDeletes are the servers' own commands, and a script for those that have neither, or do not
// permit it.
var limitDeletes = []limitDelete{
	func(key, value string) []string { return []string{"DELEX", key, "IFEQ", value} }, // Redis 8.4
	func(key, value string) []string { return []string{"DELIFEQ", key, value} },       // Valkey 9
	func(key, value string) []string { return []string{"EVALSHA", limitScriptSHA, "1", key, value} },
}

// cheapestDelete is the first that the server has and permits. It finds out on a key that nobody
// has.
func cheapestDelete(ctx context.Context, r redis.Conn) (words limitDelete, err error) {
	var refused redis.Error
	for _, words = range limitDeletes {
		w := words("bench:limit:", "")
		if _, err = redis.DoContext(r, ctx, w[0], redis.Args{}.AddFlat(w[1:])...); !errors.As(err, &refused) {
			break
		}
	}
	return words, err
}

// A limitConn is a raw connection to one server.
type limitConn struct {
	net.Conn
	in            *bufio.Reader
	address       string
	release       limitDelete
	sets, deletes []byte // of all callers
}

// limitConnect leaves to redigo what happens once a connection.
func limitConnect(ctx context.Context, e *goredislib.Options) (*limitConn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := &limitConn{address: e.Addr}
	r, err := redis.DialContext(ctx, e.Network, e.Addr, redis.DialUsername(e.Username), redis.DialPassword(e.Password), redis.DialDatabase(e.DB),
		redis.DialContextFunc(func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			conn, err = goredislib.NewDialer(e)(ctx, e.Network, e.Addr)
			c.Conn = conn
			return conn, err
		}))
	if err != nil {
		return nil, err
	}
	if _, err = redis.DoContext(r, ctx, "SCRIPT", "LOAD", limitScript); err == nil {
		c.release, err = cheapestDelete(ctx, r)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.SetDeadline(time.Time{})
	c.in = bufio.NewReaderSize(c, 64<<10)
	return c, nil
}
