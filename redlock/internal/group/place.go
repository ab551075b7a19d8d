package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// A Place is one group of servers, where names are locked under a presence.
type Place struct {
	groups *Groups
	group  Group
	prefix string
	engine *engine.Engine

	mu       sync.Mutex // guards all that follows
	presence *core.Hold
	until    clock.Instant             // the presence ends; zero: nothing may be locked under it
	guests   map[*engine.Bond]struct{} // end with the presence
	arrival  *arrival                  // under way, or nil
}

// Name returns the group's name.
func (p *Place) Name() string { return p.group.Name }

// Until returns when the presence ends, if it is not renewed. It has ended, or there was none, if that is over.
func (p *Place) Until() clock.Instant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}

func (p *Place) isPresent() bool { return p.Until() > p.groups.config.Clock.Now() }

// Join has the Bond end with the presence in the group, from now on until Leave. It enters if there is none, so its
// errors are those of Enter. The Bond is told that the presence has ended as if that was one of its Locks.
func (p *Place) Join(ctx context.Context, b *engine.Bond) error {
	for {
		if err := p.Enter(ctx); err != nil {
			return err
		}
		p.mu.Lock()
		isPresent := p.until > p.groups.config.Clock.Now()
		if isPresent { // and if it ends now, Ended comes after this
			p.guests[b] = struct{}{}
		}
		p.mu.Unlock()
		if isPresent {
			return nil
		}
	}
}

// Leave takes the Bond out again, if it has joined. An Owner of the Bond can call it when it is told of the end.
func (p *Place) Leave(b *engine.Bond) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.guests, b)
}

// Ended implements engine.Owner for the presence. It ends all Bonds under it before the servers are asked to give
// it back: from then on other clients can complete a change of the map without this one. The next presence is of
// the same key and is acquired after this one is over, so all that have joined are under this one.
func (p *Place) Ended(presence engine.Lock) {
	p.mu.Lock()
	p.presence, p.until = nil, 0
	guests := maps.Clone(p.guests)
	p.mu.Unlock()
	for b := range guests {
		b.Ended(presence)
	}
}

// Extended implements engine.Owner for the presence.
func (p *Place) Extended(presence engine.Lock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until > 0 {
		p.until = presence.Hold.Deadline()
	}
}

// An arrival is an attempt to enter a group. All callers that wait for it share its outcome.
type arrival struct {
	done chan struct{}
	err  error
}

// Enter makes sure of the presence in the group. Its error is a *Failure, ErrMap, ErrNotYet, ErrClosed, or the
// context's.
func (p *Place) Enter(ctx context.Context) (err error) {
	if p.isPresent() {
		return nil
	}
	a := p.arrive()
	if a == nil {
		return ErrClosed
	}
	select {
	case <-a.done:
		err = a.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if p.groups.closed.Err() != nil {
		return ErrClosed
	}
	return err
}

// arrive returns the arrival that is under way, and begins one if there is none. It is nil after Close.
func (p *Place) arrive() *arrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arrival != nil {
		return p.arrival
	}
	a := &arrival{done: make(chan struct{})}
	if !p.groups.start(func() {
		a.err = p.enter(p.groups.closed)
		p.mu.Lock()
		p.arrival = nil
		p.mu.Unlock()
		close(a.done)
	}) {
		return nil
	}
	p.arrival = a
	return a
}

// enter is the arrival. Each of its steps waits for the node timeout at most.
func (p *Place) enter(ctx context.Context) error {
	if p.isPresent() {
		return nil
	}
	if err := p.groups.prove(ctx); err != nil {
		return err
	}
	l, err := p.lock(ctx, p.groups.versions.newest, true)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.presence = l.Hold
	p.mu.Unlock()
	l.Own(p)
	// The stage is read behind the presence: a version that is retired later is not this one.
	if err := p.admit(ctx); err != nil {
		l.Drop()
		return err
	}
	until := l.Deadline()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.presence == l.Hold { // it has not ended since
		p.until = until
	}
	return nil
}

// admit returns why the client must not use the group, or nil. A group without a version gets one: its
// servers have forgotten, or it is joining, and clients that have it alone must not take themselves for
// the first. Where no other group knows the version all its servers must answer, because one that is away
// may remember.
func (p *Place) admit(ctx context.Context) error {
	v, seen := p.groups.versions, p.ask(ctx)()
	if seen.err == nil && seen.highest == 0 {
		known := v.firstStage(p.groups.look(ctx))
		if !seen.isWhole && !known.proves(v.base) {
			return ErrNotYet
		}
		p.writeFirst(ctx, known)
		if seen = p.ask(ctx)(); seen.err == nil && seen.majority == 0 {
			return ErrNotYet
		}
	}
	return cmp.Or(seen.err, v.leftBehind(seen.highest))
}

// lock tries to get the lock of a version of the map: that of a reader, which is a presence, or of a writer.
func (p *Place) lock(ctx context.Context, version int, isShared bool) (engine.Lock, error) {
	c := p.groups.config
	terms := core.Terms{TTL: c.TTL, Timeout: c.Timeout, Renew: true, Shared: isShared}
	l, f, err := p.engine.Try(ctx, p.prefix+presenceName(version), &terms, engine.Schedule{})
	switch {
	case f != nil && f.Kind == core.AfterClose:
		err = ErrClosed
	case f != nil:
		err = &Failure{Group: p.Name(), Failure: f, Err: err}
	}
	return l, err
}

// A Failure is why a group has not given a presence, or not told of the map.
type Failure struct {
	*core.Failure
	Group string
	Err   error // the caller's context ended; or nil
}

func (f *Failure) Unwrap() error { return f.Err }

func (f *Failure) Error() string {
	text := fmt.Sprintf("redlock: group %q: no presence: failure of kind %d", f.Group, f.Kind)
	if f.Err != nil {
		text += ": " + f.Err.Error()
	}
	return text
}

// FailureOf returns what an error of Enter or of a Sight is to a caller: a failure that may pass, or else the error.
func FailureOf(err error) (*core.Failure, error) {
	var f *Failure
	switch {
	case errors.As(err, &f):
		return f.Failure, f.Err
	case errors.Is(err, ErrNotYet):
		return &core.Failure{Kind: core.ByOther}, nil
	case errors.Is(err, ErrClosed):
		return &core.Failure{Kind: core.AfterClose}, nil
	}
	return nil, err
}
