package redlockgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/redquorum/redquorum/election"
)

// ErrNotLeader: another machine runs the jobs, or none does at the moment.
var ErrNotLeader = errors.New("redlockgocron: not the leader")

// An Elector has the jobs run on the machine that leads. It is for gocron.WithDistributedElector,
// leads only while Run campaigns, and is safe for concurrent use.
type Elector struct {
	office *election.Election
	id     string

	mu   sync.Mutex
	runs bool  // Run is under way
	err  error // of the last Run
	term *term // nil unless this machine leads
}

var _ gocron.Elector = (*Elector)(nil)

// A term is one time of leading, with the jobs that run in it.
type term struct {
	election.Term
	ctx  context.Context
	jobs sync.WaitGroup // grows under Elector.mu, while this is Elector.term
}

// NewElector returns the Elector of a candidate for the office. id tells people who leads: see
// election.Election.Run. Errors: there is no office or no ID.
func NewElector(office *election.Election, id string) (*Elector, error) {
	switch {
	case office == nil:
		return nil, errors.New("redlockgocron: the Election is nil: make one with election.New")
	case id == "":
		return nil, errors.New("redlockgocron: the ID of the candidate is empty: pass a label that people know")
	}
	return &Elector{office: office, id: id}, nil
}

// Run campaigns, and leads whenever it can, until ctx ends: one Run at a time. A term that ends,
// with ctx or because the lock is lost, ends the contexts of its jobs (Task). Run releases the lock,
// or campaigns again, when these have returned, so a machine that shuts down is followed when its
// jobs are at rest. It knows nothing of jobs that are no Task. Close the redlock.Locker after Run,
// before the process exits.
//
// Run returns nil if ctx has ended, and otherwise an error that no patience helps against:
// redlock.ErrClosed, or what is wrong with the office's name, the ID or an option. No job runs here
// from then on. Outages are waited out.
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

// lead lasts as long as the term and its jobs.
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

// IsLeader implements gocron.Elector: it returns nil if this machine leads at this moment, and
// otherwise an error that matches ErrNotLeader and says why if that is known. It asks no server.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := e.current()
	return err
}

// current returns the term, or why there is none. e.mu is held.
func (e *Elector) current() (*term, error) {
	switch {
	case e.term != nil && e.term.ctx.Err() == nil && e.term.Remaining() > 0: // which knows a little earlier
		return e.term, nil
	case e.err != nil:
		return nil, fmt.Errorf("%w: %q has stopped campaigning: %w", ErrNotLeader, e.id, e.err)
	case !e.runs:
		return nil, fmt.Errorf("%w: %q is not campaigning: call Run", ErrNotLeader, e.id)
	}
	return nil, fmt.Errorf("%w: %q is waiting for its turn", ErrNotLeader, e.id)
}

// Task returns work as a job for gocron.NewTask. The context of work ends with the job's and with
// the term; work must stop then. It gives the resource the term's token with each write (package
// fence). The job's error is that of work, joined with one that matches redlock.ErrLost or
// redlock.ErrClosed if the term ended so meanwhile. A job whose term is over before it begins does
// not run, and its error matches ErrNotLeader. Task panics if work is nil.
func (e *Elector) Task(work func(ctx context.Context, term election.Term) error) func(context.Context) error {
	if work == nil {
		panic("redlockgocron: Task(nil): there is nothing to run")
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

// join returns the term, which does not end before its jobs.Done.
func (e *Elector) join() (*term, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, err := e.current()
	if err == nil {
		t.jobs.Add(1)
	}
	return t, err
}
