// Command leader keeps one of several processes working, and others ready to take over, with
// package election.
//
// The leader works in a context that ends when it is stopped, when it is cut off from its servers,
// or when its machine hangs for longer than the TTL. It then steps down, and the next candidate
// leads.
//
// Copy candidate.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/examples/internal/stage"
)

func main() { stage.Main(story) }

// A candidate is a process on its own machine.
type candidate struct {
	*stage.Machine
	office *election.Election
	stop   func()
	err    chan error // result of its campaign
}

// A change means that a candidate started or stopped leading.
type change struct {
	*candidate
	term election.Term
	why  error // reason it stopped; nil if it leads
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	machines, stop, err := stage.Machines(urls, "anna", "boris", "clara")
	if err != nil {
		return err
	}
	defer stop()
	changes := make(chan change, 100)
	var campaigns sync.WaitGroup
	defer campaigns.Wait()
	for _, m := range machines {
		locker, office, err := open(m.URLs)
		if err != nil {
			return err
		}
		defer locker.Close()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		c := &candidate{m, office, stop, make(chan error, 1)}
		campaigns.Go(func() {
			c.err <- campaign(ctx, office, m.Name, func(ctx context.Context, term election.Term) {
				changes <- change{c, term, nil}
				<-ctx.Done()
				changes <- change{c, term, context.Cause(ctx)}
			})
		})
	}

	var last election.Term
	terms := 0
	// next returns the next leader, and prints the changes in between.
	next := func() (*candidate, error) {
		for {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case c := <-changes:
				if c.why != nil {
					fmt.Fprintln(out, c.Name, "steps down:", c.why)
					continue
				}
				fmt.Fprintln(out, c.Name, "leads")
				if terms > 0 && (last.Remaining() > 0 || last.Token() >= c.term.Token()) {
					return nil, errors.New("two led at the same time")
				}
				last, terms = c.term, terms+1
				return c.candidate, nil
			}
		}
	}

	first, err := next()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "...", first.Name, "is stopped")
	first.stop()
	second, err := next()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "...", second.Name, "is cut off from all servers")
	second.Cut()
	third, err := next()
	if err != nil {
		return err
	}
	seen, err := third.office.Leader(ctx)
	if err != nil || seen.ID != third.Name {
		return fmt.Errorf("observers see that %q leads: %w", seen.ID, err)
	}
	fmt.Fprintf(out, "... observers see that %s leads; %s is connected again, and %s is stopped\n", seen.ID, second.Name, third.Name)
	second.Mend()
	third.stop()
	again, err := next()
	if err != nil {
		return err
	}
	again.stop()
	for _, c := range []*candidate{first, third, again} {
		if err := <-c.err; err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d terms, one leader at a time\n", terms)
	return nil
}
