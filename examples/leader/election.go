package main

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/redlock"
)

var errTold = errors.New("told to stop")

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

// lead is a leader's work: to check that it is alone, and to wait.
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

// tellToStop waits until the candidate has.
func (e *election) tellToStop(name string) error {
	e.say("... %s is told to stop", name)
	m := e.machines[name]
	m.stop(errTold)
	<-m.done
	return m.err
}

// close stops all candidates.
func (e *election) close() {
	for _, m := range e.machines {
		m.stop(errTold)
	}
	for _, m := range e.machines {
		<-m.done
		m.locker.Close()
		m.wires.Close()
	}
}

// play has the first leader told to stop, and the second cut off until the third
// has led.
func (e *election) play(ctx context.Context) error {
	begin, err := e.await(ctx, 0, Leads, anybody)
	if err != nil {
		return err
	}
	if err := e.tellToStop(e.who(begin)); err != nil {
		return err
	}

	cut, err := e.await(ctx, begin+1, Leads, anybody)
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
	next, err := e.await(ctx, cut+1, Leads, anybody)
	if err != nil {
		return err
	}

	e.say("... %s is connected again", second)
	e.machines[second].wires.Mend()
	if err := e.tellToStop(e.who(next)); err != nil {
		return err
	}
	if _, err := e.await(ctx, next+1, Leads, second); err != nil {
		return err
	}
	return e.tellToStop(second)
}
