package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/redquorum/redquorum/redlock"
)

// A shop is two instances with one database and one payment provider, who takes
// so long as the story wants.
type shop struct {
	ledger       Ledger
	instances    []*instance
	north, south *instance
	client       *http.Client
	requests     sync.WaitGroup

	charges chan *charge
	refused chan struct{} // a try to get a lock has found it held
	closed  chan struct{}

	mu   sync.Mutex
	lost map[string]error // by path
}

// A charge is what a cashier asks the payment provider for.
type charge struct {
	order  string
	ctx    context.Context // of the request that asked
	answer chan error
}

func newShop(ctx context.Context, urls []string, more ...redlock.Option) (s *shop, err error) {
	s = &shop{
		client:  &http.Client{Transport: &http.Transport{}},
		charges: make(chan *charge),
		refused: make(chan struct{}, 1),
		closed:  make(chan struct{}),
		lost:    map[string]error{},
	}
	if s.north, err = s.start(ctx, "north", urls, more); err == nil {
		s.south, err = s.start(ctx, "south", urls, more)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *shop) close() {
	close(s.closed)
	s.requests.Wait()
	s.client.CloseIdleConnections() // Shutdown would wait for those that were not used
	for _, in := range s.instances {
		in.stop()
	}
}

// charge is the payment provider. It does not heed ctx: the story decides whether it
// was still in time to stop.
func (s *shop) charge(ctx context.Context, order string) error {
	c := &charge{order: order, ctx: ctx, answer: make(chan error, 1)}
	closed := errors.New("the shop closes")
	select {
	case s.charges <- c:
	case <-s.closed:
		return closed
	}
	select {
	case err := <-c.answer:
		return err
	case <-s.closed:
		return closed
	}
}

// begin sends a request, and waits until the provider is asked because of it.
func (s *shop) begin(ctx context.Context, to *instance, path string) (*charge, <-chan reply, error) {
	replies := make(chan reply, 1)
	s.send(ctx, to, path, replies)
	select {
	case c := <-s.charges:
		return c, replies, nil
	case r := <-replies:
		return nil, nil, fmt.Errorf("%s at %s should have begun, but: %v", path, to.name, r)
	}
}

func (s *shop) tellLost(r *http.Request, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[r.URL.Path] = err
}

// lostAt returns what Cashier.Lost was told of a path.
func (s *shop) lostAt(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost[path]
}

// Observe makes the shop see who waits.
func (s *shop) Observe(e redlock.Event) {
	if e.Kind == redlock.EventAttempt && errors.Is(e.Err, redlock.ErrHeld) {
		select {
		case s.refused <- struct{}{}:
		default: // one is enough
		}
	}
}

// await waits for c, but not longer than ctx.
func await[T any](ctx context.Context, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}
