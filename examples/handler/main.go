package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func main() { servers.Main(story) }

// open is what each instance does when it starts; more is for tests.
func open(urls []string, o redlock.Observer, more ...redlock.Option) (*redlock.Locker, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes, append([]redlock.Option{
		redlock.Prefix("example:handler:"),           // apart from what else is on the servers
		redlock.TTL(2 * time.Second),                 // so long is an order locked if its instance vanishes
		redlock.NodeTimeout(1500 * time.Millisecond), // all of this is on one machine, which may be busy
		redlock.Observe(o),
	}, more...)...)
}

func story(ctx context.Context, out io.Writer, urls []string) error { return tell(ctx, out, urls) }

func tell(ctx context.Context, out io.Writer, urls []string, more ...redlock.Option) error {
	s, err := newShop(ctx, urls, more...)
	if err != nil {
		return err
	}
	defer s.close()

	r, err := s.rush(ctx, "42")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "two customers pay for order 42 at the same time, and the back office meanwhile:")
	fmt.Fprintf(out, "  one at %s:  %v\n", r.won.from.name, r.won)
	fmt.Fprintf(out, "  one at %s:  %v\n", r.refused.from.name, r.refused)
	fmt.Fprintf(out, "  back office:   %v\n", r.waited)

	c, err := s.cutOff(ctx, "43", "44")
	if err != nil {
		return err
	}
	token, _ := s.ledger.Token("44")
	fmt.Fprintln(out, "north is cut off from the lock's servers while it takes payments for orders 43 and 44:")
	fmt.Fprintf(out, "  its handlers' contexts end: %v\n", errors.Is(c.causes[0], redlock.ErrLost))
	fmt.Fprintf(out, "  43, stopped:   %v\n", c.stopped)
	fmt.Fprintf(out, "  who comes now: %v\n", c.outage)
	fmt.Fprintf(out, "  44, at south:  %v, booked with token %d\n", c.next, token)
	fmt.Fprintf(out, "  44, at north:  %v\n", c.late)
	return errors.Join(r.check(), c.check())
}

// check says what did not happen.
func (r rush) check() error {
	return errors.Join(
		r.won.want(http.StatusOK, false),
		r.refused.want(http.StatusLocked, true),
		r.waited.want(http.StatusOK, false),
	)
}

func (c cut) check() error {
	var held error
	for _, cause := range c.causes {
		if !errors.Is(cause, redlock.ErrLost) {
			held = fmt.Errorf("a handler should have been told that its lock is lost, not %v", cause)
		}
	}
	return errors.Join(held,
		c.stopped.want(http.StatusServiceUnavailable, true),
		c.outage.want(http.StatusServiceUnavailable, true),
		c.next.want(http.StatusOK, false),
		c.late.want(http.StatusConflict, false),
	)
}
