// Command stampede keeps a cache from being refilled by all its users at once.
//
// When an entry that many ask for expires, all of them miss it in the same moment, and all go to
// the database, which was cached because it cannot bear that. Here one of them gets a lock and
// refills the entry. The others are served the stale one meanwhile, or wait, if there is none.
//
// guard.go is what to copy.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func main() { servers.Main(story) }

const (
	processes = 3
	requests  = 25 // of each process, at the same time
	crowd     = processes * requests
)

// open returns the Locker of one process.
func open(urls []string) (*redlock.Locker, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes,
		redlock.NodeTimeout(2*time.Second), // all of this is on one machine, which may be busy
		redlock.MemoryGuard(false),         // new servers would have no vote for a TTL; nothing but work is at stake
	)
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	s, err := newSite(urls)
	if err != nil {
		return err
	}
	defer s.close()

	cold, err := s.coldStart(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "nothing is cached: %d requests of %d processes miss, %d asks the database, all get %q\n",
		cold.answers(), processes, cold.loads, "version 1")

	s.expire()
	expired, err := s.expired(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "it expires:        %d requests are served version 1 meanwhile, %d asks the database and gets %q\n",
		expired.served["version 1"], expired.loads, "version 2")

	return nil
}

// A site is several processes with one cache and one database. The database answers when all requests
// have missed the cache, or were served from it, so that there is a stampede on any machine.
type site struct {
	guards []*Guard // one a process
	memory *Memory
	steps  atomic.Int64 // looks into the cache, and requests to the database
	loads  atomic.Int64 // requests to the database
	late   atomic.Int64 // nanoseconds that the cache's clock was moved
	ready  chan struct{}
	atStep func(n int64)

	mu      sync.Mutex
	warning error // the first
}

func newSite(urls []string) (*site, error) {
	s := &site{}
	start := time.Now()
	s.memory = &Memory{For: time.Minute, Now: func() time.Time { return start.Add(time.Duration(s.late.Load())) }}
	for range processes {
		locker, err := open(urls)
		if err != nil {
			s.close()
			return nil, err
		}
		s.guards = append(s.guards, &Guard{Locker: locker, Cache: s, Load: s.load, Warn: s.warn})
	}
	return s, nil
}

func (s *site) close() {
	for _, g := range s.guards {
		g.Locker.Close()
	}
}

// Get and Set make the site the Cache of its processes.
func (s *site) Get(key string) (string, State) {
	value, state := s.memory.Get(key)
	s.atStep(s.steps.Add(1))
	return value, state
}

func (s *site) Set(key, value string) { s.memory.Set(key, value) }

func (s *site) expire() { s.late.Add(int64(time.Minute)) }

func (s *site) load(ctx context.Context, _ string) (string, error) {
	n := s.loads.Add(1)
	s.atStep(s.steps.Add(1))
	select {
	case <-s.ready:
		return fmt.Sprintf("version %d", n), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (s *site) warn(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warning = cmp.Or(s.warning, err)
}

// explain adds to err what the site was warned of.
func (s *site) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || s.warning == nil {
		return err
	}
	return fmt.Errorf("%w; before that: %w", err, s.warning)
}

// A wave is the answers to a crowd of requests.
type wave struct {
	served map[string]int // answers, by value
	steps  int64
	loads  int64
}

func (w wave) answers() (n int) {
	for _, of := range w.served {
		n += of
	}
	return n
}

// coldStart sends a crowd to an empty cache. The database answers when all have missed, and the holder of
// the lock has looked again and asked it.
func (s *site) coldStart(ctx context.Context) (wave, error) {
	s.ready = make(chan struct{})
	s.atStep = func(n int64) {
		if n == crowd+2 {
			close(s.ready)
		}
	}
	return s.send(ctx, func() {})
}

// expired sends crowds to a stale entry until one of them has brought a fresh value, see Guard.Get.
// The database answers when all others were served.
func (s *site) expired(ctx context.Context) (wave, error) {
	s.atStep = func(int64) {}
	for {
		s.ready = make(chan struct{})
		var served atomic.Int64
		w, err := s.send(ctx, func() {
			if served.Add(1) == crowd-1 {
				close(s.ready)
			}
		})
		if err == nil && w.loads == 0 {
			err = s.explain(ctx.Err()) // which nobody has looked at who was served a stale entry
		}
		if err != nil || w.loads > 0 {
			return w, err
		}
	}
}

// send sends all requests at the same time.
func (s *site) send(ctx context.Context, answered func()) (wave, error) {
	w := wave{served: map[string]int{}}
	steps, loads := s.steps.Load(), s.loads.Load()
	var (
		mu     sync.Mutex
		failed int
		first  error
		all    sync.WaitGroup
	)
	for _, g := range s.guards {
		for range requests {
			all.Go(func() {
				value, err := g.Get(ctx, "front page")
				mu.Lock()
				if err != nil {
					failed++
					first = cmp.Or(first, err)
				}
				w.served[value]++
				mu.Unlock()
				answered()
			})
		}
	}
	all.Wait()
	w.steps, w.loads = s.steps.Load()-steps, s.loads.Load()-loads
	switch {
	case failed > 0:
		return w, fmt.Errorf("%d of %d requests failed: %w", failed, crowd, s.explain(first))
	case w.loads > 1:
		return w, s.explain(fmt.Errorf("the database was asked %d times, which once would have done", w.loads))
	}
	return w, nil
}
