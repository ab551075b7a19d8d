package subject

import (
	"bytes"
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
			Note: "No library: prebuilt requests over one raw connection a server, done at the quorum-th answer, released by the servers' own compare-and-delete where they have one. No drawing of values, deadlines, renewal or faults: any of them ends it.",
		},
		Drive: drive,
	}
}

// settle bounds the time in which cycles under way are finished when the run ends.
const settle = time.Second

// drive is one goroutine a connection, which reads what has arrived, lets the slots go on whose
// quorum that completes, and writes the requests of all of them to each server in one go.
//
// Other forms were measured. One goroutine with poll(2) for all connections is as fast with 64
// slots, which the servers' own work limits, and slower with one, for it does not read while it
// writes. All slots in step, so that batches are as long as can be, and writers beside the readers
// make no difference.
func drive(ctx context.Context, urls []string, cfg Config, d Driven) error {
	endpoints, err := endpoint.ParseAll(urls)
	if err != nil {
		return err
	}
	l := &limitRun{driven: d, quorum: len(endpoints)/2 + 1, left: cfg.Callers}
	defer l.close()
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
	l.prepare(cfg)

	var readers sync.WaitGroup
	for _, c := range l.conns {
		readers.Go(func() {
			if err := l.read(c); err != nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.failed(c, err)
			}
		})
	}
	stop := context.AfterFunc(ctx, l.stop)
	l.start()
	readers.Wait()
	stop()
	return l.err
}

// A limitRun is the state of drive; mu protects all of it but the inner of a connection's reader.
type limitRun struct {
	driven Driven
	quorum int
	conns  []*limitConn

	mu       sync.Mutex
	slots    []limitSlot
	left     int // slots that have not ended
	stopping bool
	err      error
}

// A limitSlot is one caller: its SET, its compare-and-delete, and so on.
type limitSlot struct {
	set             []byte
	deletes         [len(limitDeletes)][]byte // by what the server has
	seq             uint32                    // of the request under way; odd: the delete
	yes, no         int                       // answers to it
	began, acquired time.Time
}

func (l *limitRun) prepare(cfg Config) {
	run := rand.Text() // so that no other process has the same names
	for i := range cfg.Callers {
		key, value := fmt.Sprintf("bench:limit:%s:%d", run, i), rand.Text()
		ttl := strconv.FormatInt(cfg.TTL.Milliseconds(), 10)
		s := limitSlot{set: limitRequest("SET", key, value, "NX", "PX", ttl)}
		for i, words := range limitDeletes {
			s.deletes[i] = limitRequest(words(key, value)...)
		}
		l.slots = append(l.slots, s)
	}
}

func (l *limitRun) start() {
	l.mu.Lock()
	now := time.Now()
	for i := range l.slots {
		l.slots[i].began = now
		l.submit(i)
	}
	l.mu.Unlock()
	l.flush()
}

// submit queues the slot's next request for every server. One that would be behind the slot's
// previous request is so on its connection too.
func (l *limitRun) submit(i int) {
	s := &l.slots[i]
	s.yes, s.no = 0, 0
	for _, c := range l.conns {
		if s.seq&1 == 0 {
			c.out = append(c.out, s.set...)
		} else {
			c.out = append(c.out, s.deletes[c.deletes]...)
		}
		select {
		case c.asked <- limitAsked{int32(i), s.seq}:
		default:
			l.failed(c, fmt.Errorf("it is %d answers behind the others", limitBacklog))
		}
	}
}

// answer counts one server's answer and reports whether it brought the slot on.
func (l *limitRun) answer(a limitAsked, yes bool, now time.Time, cycles []limitCycle) ([]limitCycle, bool, error) {
	s := &l.slots[a.slot]
	switch {
	case a.seq != s.seq: // of an earlier request
		return cycles, false, nil
	case yes:
		s.yes++
	default:
		s.no++
	}
	if s.no > len(l.conns)-l.quorum {
		return cycles, false, errors.New("a lock was refused, or gone before its release: the TTL is too short for these servers")
	}
	if s.yes < l.quorum {
		return cycles, false, nil
	}
	s.seq++
	if s.seq&1 == 1 {
		s.acquired = now
	} else {
		cycles = append(cycles, limitCycle{int(a.slot), s.began, s.acquired.Sub(s.began),
			now.Sub(s.acquired)})
		s.began = now
		if l.stopping {
			l.left--
			return cycles, false, nil
		}
	}
	l.submit(int(a.slot))
	return cycles, true, nil
}

// flush writes the queued requests. A goroutine that finds another writing leaves the rest to it.
func (l *limitRun) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		for len(c.out) > 0 && !c.writing {
			c.writing = true
			b := c.out
			c.out, c.spare = c.spare[:0], b
			l.mu.Unlock()
			_, err := c.Write(b)
			l.mu.Lock()
			c.writing = false
			if err != nil {
				l.failed(c, err)
			}
		}
	}
}

// stop lets the slots end with their cycles, so that no keys are left.
func (l *limitRun) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopping = true
	for _, c := range l.conns {
		c.SetDeadline(time.Now().Add(settle))
	}
}

// failed keeps the first error and wakes all readers. It is no error if the time to settle was not
// enough. The caller holds mu.
func (l *limitRun) failed(c *limitConn, err error) {
	if l.stopping && errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	if l.err == nil {
		l.err = fmt.Errorf("limit: %s: %w", c.address, err)
	}
	l.close()
}

func (l *limitRun) close() {
	for _, c := range l.conns {
		c.Close()
	}
}

const limitScript = `if redis.call("GET",KEYS[1])==ARGV[1] then return redis.call("DEL",KEYS[1]) else return 0 end`

var limitScriptSHA = func() string {
	sum := sha1.Sum([]byte(limitScript))
	return hex.EncodeToString(sum[:])
}()

// limitDeletes are the words of a compare-and-delete, the cheapest first: the servers' own commands,
// and the script for those that have neither, or do not permit it.
var limitDeletes = [...]func(key, value string) []string{
	func(key, value string) []string { return []string{"DELEX", key, "IFEQ", value} }, // Redis 8.4
	func(key, value string) []string { return []string{"DELIFEQ", key, value} },       // Valkey 9
	func(key, value string) []string { return []string{"EVALSHA", limitScriptSHA, "1", key, value} },
}

// limitDelete is the first of limitDeletes that the server has and permits. It finds out on a key
// that nobody has.
func limitDelete(do func(words []string) error) (which int, err error) {
	var refused redis.Error
	script := len(limitDeletes) - 1
	for i, words := range limitDeletes[:script] {
		if err := do(words("bench:limit:", "")); !errors.As(err, &refused) {
			return i, err
		}
	}
	return script, nil
}

// A limitConn is a raw connection to one server. Its run's mu protects the rest.
type limitConn struct {
	net.Conn
	address    string
	deletes    int    // index in limitDeletes
	out, spare []byte // requests to be written, and the buffer of those being written
	writing    bool
	asked      chan limitAsked // requests without an answer, in order
}

// limitConnect leaves to redigo what happens once a connection.
func limitConnect(ctx context.Context, e endpoint.Endpoint) (*limitConn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := &limitConn{address: e.Addr, asked: make(chan limitAsked, limitBacklog)}
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
		c.deletes, err = limitDelete(func(words []string) error {
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

// A limitCycle is a cycle to be reported.
type limitCycle struct {
	slot             int
	began            time.Time
	acquire, release time.Duration
}

// read takes the connection's answers until the run has ended.
func (l *limitRun) read(c *limitConn) error {
	in, held := make([]byte, 64<<10), 0
	var cycles []limitCycle
	for {
		n, err := c.Read(in[held:])
		if err != nil {
			return err
		}
		now := time.Now()
		on, over := false, false
		rest := in[:held+n]
		l.mu.Lock()
		for err == nil {
			length, yes, bad := limitAnswer(rest)
			if length == 0 {
				err = bad
				break
			}
			rest = rest[length:]
			select {
			case asked := <-c.asked:
				var more bool
				cycles, more, err = l.answer(asked, yes, now, cycles)
				on = on || more
			default:
				err = errors.New("an answer that was not asked for")
			}
		}
		if l.left == 0 {
			over = len(c.asked) == 0
			l.wakeIdle()
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
		held = copy(in, rest)
		if on {
			l.flush()
		}
		for _, cy := range cycles {
			l.driven.Cycle(cy.slot, cy.began, cy.acquire, cy.release)
		}
		cycles = cycles[:0]
		if over {
			return nil
		}
	}
}

// wakeIdle ends the reads of connections from which nothing will come any more.
func (l *limitRun) wakeIdle() {
	for _, c := range l.conns {
		if len(c.asked) == 0 {
			c.SetReadDeadline(time.Now())
		}
	}
}

// limitRequest is a command as Redis reads it.
func limitRequest(args ...string) []byte {
	b := append([]byte("*"+strconv.Itoa(len(args))), "\r\n"...)
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// limitAnswer reads one of the answers that can come, each of which is a line, and returns its
// length, or zero if it is not complete.
func limitAnswer(b []byte) (length int, yes bool, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 1 {
		return 0, false, nil
	}
	switch line := b[:end-1]; string(line) {
	case "+OK", ":1":
		return end + 1, true, nil
	case "$-1", ":0":
		return end + 1, false, nil
	default:
		return 0, false, fmt.Errorf("it answers %q", line)
	}
}

// limitBacklog is the number of unanswered requests of one server at which the run ends: far more
// than are ever under way unless it hangs.
const limitBacklog = 1 << 16

// A limitAsked is a request under way.
type limitAsked struct {
	slot int32
	seq  uint32 // as of its slot
}
