package subject

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
)

func limit() Spec {
	return Spec{
		Subject: record.Subject{
			Name: "limit", Title: "physical limit",
			Note: "No library: prebuilt requests over one raw connection a server, all callers in step, done at the quorum-th answer, released by the servers' own compare-and-delete where they have one. No drawing of values, deadlines, renewal or faults: any of them ends it.",
		},
		Drive: drive,
	}
}

// settle bounds the time in which the step under way is finished when the run ends.
const settle = time.Second

// drive is one goroutine a connection, which reads what has arrived. The one that completes a quorum
// writes the next step of all callers to each server in one go.
//
// Other forms were measured: callers that go on one by one, several groups of callers with
// connections of their own, and writers beside the readers are no faster.
func drive(parent context.Context, urls []string, cfg Config, d Driven) error {
	endpoints, err := endpoint.ParseAll(urls)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	l := &limitRun{ctx: ctx, driven: d, callers: cfg.Callers, quorum: len(endpoints)/2 + 1}
	defer func() {
		for _, c := range l.conns {
			c.Close()
		}
	}()
	for _, e := range endpoints {
		c, err := limitConnect(ctx, e)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("limit: %s: %w", e.Addr, e.Hide(err))
		}
		l.conns = append(l.conns, c)
	}
	l.prepare(cfg.TTL)

	stop := context.AfterFunc(ctx, func() {
		for _, c := range l.conns {
			c.SetDeadline(time.Now().Add(settle))
		}
	})
	defer stop()
	l.start()
	var readers sync.WaitGroup
	for _, c := range l.conns {
		readers.Go(func() {
			// It is no error if the time to settle was not enough.
			if err := l.read(c); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				fail(fmt.Errorf("limit: %s: %w", c.address, err))
			}
		})
	}
	readers.Wait()
	if err := context.Cause(ctx); err != context.Cause(parent) {
		return err
	}
	return nil
}

// A limitRun is the state of drive. An even step sets the keys of all callers, an odd one deletes
// them.
type limitRun struct {
	ctx     context.Context // after whose end no key is set
	driven  Driven
	callers int
	quorum  int
	conns   []*limitConn

	mu              sync.Mutex // protects what follows
	step            int
	answers         int // servers that have finished the step
	began, acquired time.Time
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

func (l *limitRun) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = time.Now()
	l.send(func(c *limitConn) []byte { return c.sets })
}

// send writes to all servers, and waits for one that is so far behind that it takes no more. A
// connection that cannot be written to cannot be read either, which its reader tells.
func (l *limitRun) send(batch func(*limitConn) []byte) {
	for _, c := range l.conns {
		_, _ = c.Write(batch(c))
	}
}

// read takes the connection's answers until the run has ended.
func (l *limitRun) read(c *limitConn) error {
	in := bufio.NewReaderSize(c, 64<<10)
	for step := 0; ; step++ {
		for range l.callers {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return err
			}
			if last, err := limitAnswer(line); last || err != nil {
				return err
			}
		}
		l.finished(step)
	}
}

// finished counts a server that has finished the step. The quorum-th begins the next one; the
// others find that it has begun.
func (l *limitRun) finished(step int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if step == l.step {
		l.answers++
	}
	if l.answers < l.quorum {
		return
	}
	now := time.Now()
	l.step, l.answers = step+1, 0
	if l.step%2 == 1 {
		l.acquired = now
		l.send(func(c *limitConn) []byte { return c.deletes })
		return
	}
	began := l.began
	l.began = now
	if l.ctx.Err() == nil {
		l.send(func(c *limitConn) []byte { return c.sets })
	} else {
		l.send(func(*limitConn) []byte { return limitRequest("PING") }) // behind the last step: no keys are left
	}
	for i := range l.callers { // while the servers work
		l.driven.Cycle(i, began, l.acquired.Sub(began), now.Sub(l.acquired))
	}
}

// limitAnswer reads one of the answers that can come, each of which is a line. The last is that to
// PING.
func limitAnswer(line []byte) (last bool, err error) {
	switch string(line) {
	case "+OK\r\n", ":1\r\n":
		return false, nil
	case "+PONG\r\n":
		return true, nil
	case "$-1\r\n", ":0\r\n":
		return false, errors.New("a lock was refused, or gone before its release: the TTL is too short for these servers")
	}
	return false, fmt.Errorf("it answers %q", line)
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

var limitScriptSHA = func() string {
	sum := sha1.Sum([]byte(limitScript))
	return hex.EncodeToString(sum[:])
}()

// A limitDelete is the words of a compare-and-delete.
type limitDelete func(key, value string) []string

// limitDeletes are the servers' own commands, and limitByScript is for those that have neither, or
// do not permit it.
var limitDeletes = []limitDelete{
	func(key, value string) []string { return []string{"DELEX", key, "IFEQ", value} }, // Redis 8.4
	func(key, value string) []string { return []string{"DELIFEQ", key, value} },       // Valkey 9
}

func limitByScript(key, value string) []string {
	return []string{"EVALSHA", limitScriptSHA, "1", key, value}
}

// cheapestDelete is the first that the server has and permits. It finds out on a key that nobody
// has.
func cheapestDelete(do func(words []string) error) (limitDelete, error) {
	var refused redis.Error
	for _, words := range limitDeletes {
		if err := do(words("bench:limit:", "")); !errors.As(err, &refused) {
			return words, err
		}
	}
	return limitByScript, nil
}

// A limitConn is a raw connection to one server.
type limitConn struct {
	net.Conn
	address       string
	release       limitDelete
	sets, deletes []byte // of all callers
}

// limitConnect leaves to redigo what happens once a connection.
func limitConnect(ctx context.Context, e endpoint.Endpoint) (*limitConn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := &limitConn{address: e.Addr}
	r, err := redis.DialContext(ctx, e.Network, e.Addr, redis.DialUsername(e.Username), redis.DialPassword(e.Password), redis.DialDatabase(e.DB),
		redis.DialContextFunc(func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			conn, err = e.Dial(ctx)
			c.Conn = conn
			return conn, err
		}))
	if err != nil {
		return nil, err
	}
	if _, err = redis.DoContext(r, ctx, "SCRIPT", "LOAD", limitScript); err == nil {
		c.release, err = cheapestDelete(func(words []string) error {
			_, err := redis.DoContext(r, ctx, words[0], redis.Args{}.AddFlat(words[1:])...)
			return err
		})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.SetDeadline(time.Time{})
	return c, nil
}
