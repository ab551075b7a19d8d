// Command leader keeps one of several processes at work, and another one ready to take over.
//
// All candidates wait for the same lock. The one that gets it leads, in a context that ends with
// the lock: when the leader is told to stop, when it is cut off from its servers, or when its
// machine hangs for longer than the TTL. It steps down, and the next one leads.
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

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func main() { servers.Main(story) }

// open returns the Locker of one candidate.
func open(urls []string) (*redlock.Locker, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes,
		redlock.Fenced(),                          // each term has a number, above all before
		redlock.TTL(time.Second),                  // so long there is no leader if it vanishes
		redlock.NodeTimeout(300*time.Millisecond), // all of this is on one machine, which may be busy
	)
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	e, err := newElection(ctx, out, urls)
	if err != nil {
		return err
	}
	defer e.close()
	if err := e.play(ctx); err != nil {
		return err
	}
	if e.overlaps > 0 {
		return errors.New("two led at the same time")
	}
	fmt.Fprintf(out, "%d terms, one leader at a time\n", len(e.terms))
	return nil
}

var errStopped = errors.New("told to stop")

// An election has three candidates, each on a machine of its own.
type election struct {
	*record
	machines map[string]*machine

	termsMu  sync.Mutex
	terms    []*redlock.Lock // in order
	overlaps int             // terms that began while another was valid
}

type machine struct {
	wires  *servers.Wires
	locker *redlock.Locker
	stop   context.CancelCauseFunc
	done   chan struct{}
	err    error // of the candidate; to be read when done
}

func newElection(ctx context.Context, out io.Writer, urls []string) (*election, error) {
	e := &election{record: newRecord(out), machines: map[string]*machine{}}
	for _, name := range []string{"anna", "boris", "clara"} {
		if err := e.start(ctx, name, urls); err != nil {
			e.close()
			return nil, err
		}
	}
	return e, nil
}

func (e *election) start(ctx context.Context, name string, urls []string) error {
	wires, err := servers.NewWires(urls)
	if err != nil {
		return err
	}
	locker, err := open(wires.URLs())
	if err != nil {
		wires.Close()
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	m := &machine{wires: wires, locker: locker, stop: stop, done: make(chan struct{})}
	e.machines[name] = m
	c := &Candidate{Name: name, Locker: locker, Lead: e.lead, Tell: e.tell}
	go func() {
		defer close(m.done)
		m.err = c.Run(ctx, "example:leader")
	}()
	return nil
}

// lead checks that it is alone, and waits for the end of its term.
func (e *election) lead(ctx context.Context, lock *redlock.Lock) error {
	e.termsMu.Lock()
	for _, earlier := range e.terms {
		if earlier.Valid() || earlier.Fence() >= lock.Fence() {
			e.overlaps++
		}
	}
	e.terms = append(e.terms, lock)
	e.termsMu.Unlock()
	<-ctx.Done()
	return nil
}

// stop stops a candidate and waits until it has ended.
func (e *election) stop(name string) error {
	e.say("... %s is told to stop", name)
	m := e.machines[name]
	m.stop(errStopped)
	<-m.done
	return m.err
}

// close stops all candidates.
func (e *election) close() {
	for _, m := range e.machines {
		m.stop(errStopped)
	}
	for _, m := range e.machines {
		<-m.done
		m.locker.Close()
		m.wires.Close()
	}
}

// play stops the first leader, and cuts the second off until the third has led.
func (e *election) play(ctx context.Context) error {
	begin, err := e.await(ctx, 0, Leads, anyCandidate)
	if err != nil {
		return err
	}
	if err := e.stop(e.who(begin)); err != nil {
		return err
	}

	cut, err := e.await(ctx, begin+1, Leads, anyCandidate)
	if err != nil {
		return err
	}
	second := e.who(cut)
	e.say("... %s is cut off from all servers", second)
	e.machines[second].wires.Cut()
	if _, err := e.await(ctx, cut+1, StepsDown, second); err != nil {
		return err
	}
	if _, err := e.await(ctx, cut+1, NoQuorum, second); err != nil {
		return err
	}
	next, err := e.await(ctx, cut+1, Leads, anyCandidate)
	if err != nil {
		return err
	}

	e.say("... %s is connected again", second)
	e.machines[second].wires.Mend()
	if err := e.stop(e.who(next)); err != nil {
		return err
	}
	if _, err := e.await(ctx, next+1, Leads, second); err != nil {
		return err
	}
	return e.stop(second)
}

// A record keeps the transitions, prints them, and lets the story wait for one.
type record struct {
	mu      sync.Mutex
	out     io.Writer
	all     []Transition
	changed chan struct{} // closed with the next one
}

func newRecord(out io.Writer) *record { return &record{out: out, changed: make(chan struct{})} }

func (r *record) tell(t Transition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(r.out, t)
	r.all = append(r.all, t)
	close(r.changed)
	r.changed = make(chan struct{})
}

// say prints what the story does to the candidates.
func (r *record) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// anyCandidate stands for all names.
const anyCandidate = ""

// await returns the index of the first such transition from an index on, and waits for it if need
// be.
func (r *record) await(ctx context.Context, from int, what What, who string) (int, error) {
	for {
		r.mu.Lock()
		all, changed := r.all, r.changed
		r.mu.Unlock()
		for ; from < len(all); from++ {
			if t := all[from]; t.What == what && (who == anyCandidate || t.Who == who) {
				return from, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for %q (%s): %w", what, who, context.Cause(ctx))
		}
	}
}

func (r *record) who(i int) string { return r.transitions()[i].Who }

func (r *record) transitions() []Transition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}
