package subject

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func limit() Spec {
	return Spec{
		Subject: record.Subject{
			Name: "limit", Title: "physical limit",
			Note: "No library: prebuilt requests over one raw connection a server, done at the quorum-th answer. No drawing of values, deadlines, renewal or faults: any of them ends it.",
		},
		Drive: drive,
	}
}

// settle bounds the time in which cycles under way are finished when the run ends.
const settle = time.Second

// drive is one goroutine a connection, which reads what has arrived, lets the
// slots go on whose quorum that completes, and writes the requests of all of them
// to each server in one go.
//
// Other forms were measured. One goroutine with poll(2) for all connections is as
// fast with 64 slots, which the servers' own work limits, and slower with one, for
// it does not read while it writes. All slots in step, so that batches are as long
// as can be, and writers beside the readers make no difference.
func drive(ctx context.Context, urls []string, cfg Config, d Driven) error {
	targets, err := parseURLs(urls)
	if err != nil {
		return err
	}
	l := &limitRun{driven: d, quorum: len(targets)/2 + 1, left: cfg.Callers}
	defer l.close()
	for _, t := range targets {
		c, err := limitConnect(ctx, t)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("limit: %s: %w", t.address, t.hide(err))
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

// A limitRun is the state of drive; mu protects all of it but the inner of a
// connection's reader.
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
	requests        [2][]byte
	seq             uint32 // of the request under way; odd: the delete
	yes, no         int    // answers to it
	began, acquired time.Time
}

func (l *limitRun) prepare(cfg Config) {
	run := rand.Text() // so that no other process has the same names
	for i := range cfg.Callers {
		key, value := fmt.Sprintf("bench:limit:%s:%d", run, i), rand.Text()
		ttl := strconv.FormatInt(cfg.TTL.Milliseconds(), 10)
		l.slots = append(l.slots, limitSlot{requests: [2][]byte{
			limitRequest("SET", key, value, "NX", "PX", ttl),
			limitRequest("EVALSHA", limitScriptSHA, "1", key, value),
		}})
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

// submit queues the slot's next request for every server. One that would be
// behind the slot's previous request is so on its connection too.
func (l *limitRun) submit(i int) {
	s := &l.slots[i]
	s.yes, s.no = 0, 0
	for _, c := range l.conns {
		c.out = append(c.out, s.requests[s.seq&1]...)
		c.asked.push(limitAsked{int32(i), s.seq})
	}
}

// answer counts one server's answer and reports whether it brought the slot on.
func (l *limitRun) answer(a limitAsked, yes bool, now time.Time, cycles []limitCycle) ([]limitCycle, bool, error) {
	s := &l.slots[a.slot]
	switch {
	case a.seq != s.seq: // a straggler's
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
		cycles = append(cycles, limitCycle{int(a.slot), s.began, s.acquired.Sub(s.began), now.Sub(s.acquired)})
		s.began = now
		if l.stopping {
			l.left--
			return cycles, false, nil
		}
	}
	l.submit(int(a.slot))
	return cycles, true, nil
}

// flush writes what is queued. Whoever finds another at it leaves the rest to him.
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

// failed keeps the first error and wakes all readers. It is no error if the time to
// settle was not enough. The caller holds mu.
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
