package redlockgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/redquorum/redquorum/election"
)

// ErrNotLeader means that another machine runs the jobs, or that currently none does.
var ErrNotLeader = errors.New("redlockgocron: not the leader")

// An Elector runs the jobs on the machine that leads. It is for gocron.WithDistributedElector. It
// leads only while Run campaigns, and is safe for concurrent use.
type Elector struct {
	office *election.Election
	id     string

	mu   sync.Mutex
	runs bool  // Run is in progress
	err  error // result of the last Run
	term *term // nil unless this machine leads
}

var _ gocron.Elector = (*Elector)(nil)

// A term is one time as leader, with its running jobs.
type term struct {
	election.Term
	ctx  context.Context
	jobs sync.WaitGroup // grows under Elector.mu, while this term is Elector.term
}

// NewElector returns the Elector of one candidate. id identifies the candidate to people: see
// election.Election.Run. NewElector returns an error without an Election or an ID.
func NewElector(office *election.Election, id string) (*Elector, error) {
	switch {
	case office == nil:
		return nil, errors.New("redlockgocron: the Election is nil: make one with election.New")
	case id == "":
		return nil, errors.New("redlockgocron: the ID of the candidate is empty: pass a label that people know")
	}
	return &Elector{office: office, id: id}, nil
}

// Run campaigns, and leads whenever it can, until ctx ends. Only one Run at a time is allowed. When
// a term ends, with ctx or because the lock was lost, the contexts of its jobs (Task) end. After
// these jobs have returned, Run releases the lock or campaigns again, so the next leader starts
// only after the jobs of a machine that shuts down have stopped. Run does not wait for jobs without
// Task. Close the redlock.Locker after Run, before the process exits.
//
// Run returns nil if ctx has ended. Otherwise it returns an error that waiting cannot fix:
// redlock.ErrClosed, or an invalid name, ID or option of the election. After an error this machine
// runs no more jobs. Run waits through outages.
func (e *Elector) Run(ctx context.Context) error {
	e.mu.Lock()
	if e.runs {
		e.mu.Unlock()
		return fmt.Errorf("redlockgocron: %q is already campaigning: use an Elector for each candidate", e.id)
	}
	e.runs, e.err = true, nil
	e.mu.Unlock()
	err := e.office.Run(ctx, e.id, e.lead)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs, e.err = false, err
	return err
}

// lead returns when the term has ended and its jobs have returned.
func (e *Elector) lead(ctx context.Context, t election.Term) error {
	now := &term{Term: t, ctx: ctx}
	e.begin(now)
	<-ctx.Done()
	e.begin(nil)
	now.jobs.Wait()
	return nil
}

func (e *Elector) begin(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// IsLeader implements gocron.Elector. It returns nil if this machine leads at this moment, and
// otherwise an error that matches ErrNotLeader and contains the reason, if known. It sends nothing
// to the servers.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := e.current()
	return err
}

// current returns the term, or an error with the reason for its absence. The caller must hold e.mu.
func (e *Elector) current() (*term, error) {
	switch {
	case e.term != nil && e.term.ctx.Err() == nil && e.term.Remaining() > 0: // Remaining reaches zero slightly before the context ends
		return e.term, nil
	case e.err != nil:
		return nil, fmt.Errorf("%w: %q has stopped campaigning: %w", ErrNotLeader, e.id, e.err)
	case !e.runs:
		return nil, fmt.Errorf("%w: %q is not campaigning: call Run", ErrNotLeader, e.id)
	}
	return nil, fmt.Errorf("%w: %q is waiting for its turn", ErrNotLeader, e.id)
}

// Task returns work as a job for gocron.NewTask. The context of work ends with the context of the
// job and with the term; work must then stop. work sends the term's token to the resource with each
// write (package fence). The job returns the error of work, joined with an error that matches
// redlock.ErrLost or redlock.ErrClosed if one of these ended the term. A job whose term has ended
// before it begins does not run, and returns an error that matches ErrNotLeader. Task panics if
// work is nil.
func (e *Elector) Task(work func(ctx context.Context, term election.Term) error) func(context.Context) error {
	if work == nil {
		panic("redlockgocron: Task(nil): pass a function")
	}
	return func(ctx context.Context) error {
		t, err := e.join()
		if err != nil {
			return err
		}
		defer t.jobs.Done()
		return under(ctx, t.ctx, t, func(ctx context.Context) error { return work(ctx, t.Term) })
	}
}

// join returns the current term. The term does not end before the caller calls jobs.Done.
func (e *Elector) join() (*term, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, err := e.current()
	if err == nil {
		t.jobs.Add(1)
	}
	return t, err
}
