// Command leader keeps one of several processes at work, and others ready to take over, by package
// election.
//
// The one that leads does so in a context that ends when it is told to stop, when it is cut off
// from its servers, or when its machine hangs for longer than the TTL. It steps down, and the next
// one leads.
//
// candidate.go is what to copy.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/redlock"
)

func main() { servers.Main(story) }

// A candidate is on a machine of its own.
type candidate struct {
	name   string
	wires  *servers.Wires
	locker *redlock.Locker
	office *election.Election
	stop   func()
	ended  chan error
}

// A change is that a candidate has begun to lead, or why it does so no more.
type change struct {
	*candidate
	term election.Term
	why  error // nil: it leads
}

// A play is three candidates, and what they have done.
type play struct {
	out     io.Writer
	all     []*candidate
	changes chan change

	mu       sync.Mutex
	terms    []election.Term
	overlaps int // terms that began while another had something left, or with a lower token
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	p := &play{out: out, changes: make(chan change, 100)}
	defer p.close()
	for _, name := range []string{"anna", "boris", "clara"} {
		if err := p.start(ctx, name, urls); err != nil {
			return err
		}
	}
	if err := p.run(ctx); err != nil {
		return err
	}
	if p.overlaps > 0 {
		return errors.New("two led at the same time")
	}
	fmt.Fprintf(out, "%d terms, one leader at a time\n", len(p.terms))
	return nil
}

func (p *play) start(ctx context.Context, name string, urls []string) error {
	wires, err := servers.NewWires(urls)
	if err != nil {
		return err
	}
	locker, office, err := open(wires.URLs())
	if err != nil {
		wires.Close()
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	c := &candidate{name, wires, locker, office, stop, make(chan error, 1)}
	p.all = append(p.all, c)
	go func() {
		c.ended <- campaign(ctx, office, name, func(ctx context.Context, term election.Term) {
			p.enter(term)
			p.changes <- change{c, term, nil}
			<-ctx.Done()
			p.changes <- change{c, term, context.Cause(ctx)}
		})
	}()
	return nil
}

// enter checks that the leader is alone.
func (p *play) enter(term election.Term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, before := range p.terms {
		if before.Remaining() > 0 || before.Token() >= term.Token() {
			p.overlaps++
		}
	}
	p.terms = append(p.terms, term)
}

func (p *play) close() {
	for _, c := range p.all {
		c.stop()
		c.locker.Close()
		c.wires.Close()
	}
}

// next waits for the next change, and tells it.
func (p *play) next(ctx context.Context) (change, error) {
	select {
	case c := <-p.changes:
		if c.why == nil {
			fmt.Fprintln(p.out, c.name, "leads")
		} else {
			fmt.Fprintln(p.out, c.name, "steps down:", c.why)
		}
		return c, nil
	case <-ctx.Done():
		return change{}, context.Cause(ctx)
	}
}

// replace does something to the leader, and returns the next one.
func (p *play) replace(ctx context.Context, leader change, what string, do func(*candidate)) (change, error) {
	fmt.Fprintln(p.out, "...", leader.name, what)
	do(leader.candidate)
	down, err := p.next(ctx)
	if err != nil {
		return down, err
	}
	if down.candidate != leader.candidate || down.why == nil {
		return down, fmt.Errorf("%s should have stepped down first", leader.name)
	}
	return p.next(ctx)
}

// run stops the first leader, and cuts the second off until the third has led.
func (p *play) run(ctx context.Context) error {
	first, err := p.next(ctx)
	if err != nil {
		return err
	}
	second, err := p.replace(ctx, first, "is told to stop", func(c *candidate) { c.stop() })
	if err != nil {
		return err
	}
	third, err := p.replace(ctx, second, "is cut off from all servers", func(c *candidate) { c.wires.Cut() })
	if err != nil {
		return err
	}
	seen, err := third.office.Leader(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "... observers see that %s leads; %s is connected again\n", seen.ID, second.name)
	if seen.ID != third.name {
		return fmt.Errorf("%s leads", third.name)
	}
	second.wires.Mend()
	last, err := p.replace(ctx, third, "is told to stop", func(c *candidate) { c.stop() })
	if err != nil {
		return err
	}
	last.stop()
	for _, c := range []*candidate{first.candidate, third.candidate, last.candidate} {
		select {
		case err := <-c.ended:
			if err != nil {
				return err
			}
		case <-time.After(time.Minute):
			return fmt.Errorf("%s does not end", c.name)
		}
	}
	return nil
}
