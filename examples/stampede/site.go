package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A site is several processes with one cache and one database. The database
// answers when the crowd that waits for it is complete, so that there is a stampede to
// be kept off on any machine.
type site struct {
	guards []*Guard // one a process
	memory *Memory
	looks  atomic.Int64 // into the cache
	loads  atomic.Int64 // from the database
	late   atomic.Int64 // nanoseconds that the cache's clock was moved
	ready  chan struct{}
	atLook func(n int64)
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
		s.guards = append(s.guards, &Guard{Locker: locker, Cache: s, Load: s.load})
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
	s.atLook(s.looks.Add(1))
	return value, state
}

func (s *site) Set(key, value string) { s.memory.Set(key, value) }

func (s *site) expire() { s.late.Add(int64(time.Minute)) }

func (s *site) load(ctx context.Context, _ string) (string, error) {
	n := s.loads.Add(1)
	select {
	case <-s.ready:
		return fmt.Sprintf("version %d", n), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// A wave is what became of a crowd of requests.
type wave struct {
	served map[string]int // answers, by value
	looks  int64
	loads  int64
}

func (w wave) answers() (n int) {
	for _, of := range w.served {
		n += of
	}
	return n
}

// coldStart: the database answers when everybody has missed, and whoever has the lock
// has looked again.
func (s *site) coldStart(ctx context.Context) (wave, error) {
	s.ready = make(chan struct{})
	s.atLook = func(n int64) {
		if n == everybody+1 {
			close(s.ready)
		}
	}
	return s.crowd(ctx, func() {})
}

// expired: the database answers when all others were served. Crowds keep coming
// until one of them has brought a fresh value, see Guard.Get.
func (s *site) expired(ctx context.Context) (wave, error) {
	s.atLook = func(int64) {}
	for {
		s.ready = make(chan struct{})
		var served atomic.Int64
		w, err := s.crowd(ctx, func() {
			if served.Add(1) == everybody-1 {
				close(s.ready)
			}
		})
		if err != nil || w.loads > 0 {
			return w, err
		}
	}
}

// crowd sends all requests at the same time.
func (s *site) crowd(ctx context.Context, answered func()) (wave, error) {
	w := wave{served: map[string]int{}}
	looks, loads := s.looks.Load(), s.loads.Load()
	var (
		mu   sync.Mutex
		errs []error
		all  sync.WaitGroup
	)
	for _, g := range s.guards {
		for range requests {
			all.Go(func() {
				value, err := g.Get(ctx, "front page")
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				}
				w.served[value]++
				mu.Unlock()
				answered()
			})
		}
	}
	all.Wait()
	w.looks, w.loads = s.looks.Load()-looks, s.loads.Load()-loads
	return w, errors.Join(errs...)
}
