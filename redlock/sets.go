package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/semaphore"
	"github.com/redquorum/redquorum/redlock/internal/sets"
)

// TryAcquireAll asks for all the names once, as TryAcquire, and gets all or none. See AcquireAll
// for the names.
func (l *Locker) TryAcquireAll(ctx context.Context, names []string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, demand{names: names, opts: opts, isSet: true, isTry: true})
}

// AcquireAll waits for all the names, and returns one Lock for them. No other client holds any of
// the names meanwhile. The lock is extended and released as a whole, and ends as a whole when one
// of the names is lost.
//
// There are 1 to 128 names, in any order; duplicates are removed. Callers whose sets overlap cannot
// deadlock, unless one of them already holds another lock.
//
// If all names are free it takes one round trip. Otherwise AcquireAll waits for them one by one, in
// the order of their bytes, and keeps those that it has got. So a large set gets its turn, and
// callers that want single names of it may wait as long. With Retries or RetryInterval it asks for
// all at once each time, and may starve.
//
// With Fenced each name has its own token (Lock.FenceOf). Shared and Permits are errors. Other
// options and errors are those of Acquire, and QuorumError.InTheWay has the names that others hold.
// Observers hear of the votes for each name, and of the lock as a whole.
func (l *Locker) AcquireAll(ctx context.Context, names []string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, demand{names: names, opts: opts, isSet: true})
}

// DoAll is Do for all the names at once: it runs fn while holding them, as AcquireAll does.
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(context.Context) error, opts ...Option) error {
	if fn == nil {
		return fmt.Errorf("redlock: DoAll(%q): the function is nil", names)
	}
	lock, err := l.AcquireAll(ctx, names, opts...)
	if err != nil {
		return err
	}
	return underLock(ctx, lock, fn)
}

// checkSet returns why the names cannot be locked together with these settings, or nil.
func (s *settings) checkSet(names []string) error {
	switch n := len(names); {
	case n == 0:
		return errors.New("redlock: no names: give at least one, or do without a lock")
	case n > maxNames:
		return fmt.Errorf("redlock: %d names, at most %d can be locked at once: lock one name that stands for all of them", n, maxNames)
	case s.holdTogether():
		return fmt.Errorf("redlock: acquire %q: readers lock one name at a time: leave out Shared, or take it back with Exclusive", textOf(names))
	case s.holders() > 1:
		return fmt.Errorf("redlock: acquire %q: permits are of one name: leave out Permits(%d), or take them back with Exclusive", textOf(names), s.holders())
	}
	return nil
}

// takeSet takes a hold of each part, all or none.
func (k *Lock) takeSet(parts []part) error {
	set := sets.Set{Terms: k.terms()}
	for _, p := range parts {
		set.Targets = append(set.Targets, engine.Target{Engine: p.at.engine, Key: p.at.prefix + p.name})
	}
	var bond *engine.Bond
	var f *sets.Failure
	var err error
	if when, tries := k.schedule(); tries {
		bond, f, err = set.Try(k.ctxOfCaller(), when)
	} else {
		bond, f, err = set.Acquire(k.ctxOfCaller())
	}
	if bond == nil {
		return k.explain(parts, f, err)
	}
	for i, l := range bond.Locks() {
		parts[i].lock = l
	}
	k.has, k.bond, k.parts = bond, bond, parts
	return k.join()
}

// join has the locks of a name in two groups agree on its fencing token, and has the Lock end with the presences of
// its groups.
func (k *Lock) join() error {
	for i := range k.parts {
		if err := k.agree(i); err != nil {
			k.has.Drop()
			return err
		}
	}
	k.token = k.parts[0].token
	if k.locker.groups == nil {
		return nil
	}
	for _, p := range k.places() {
		if p.member.Join(k.ctxOfCaller(), k.bond) != nil {
			k.has.Drop() // the call begins anew, and learns why
		}
	}
	return nil
}

// agree has part i have the token of its name, or its permit. Clocks that are too far apart for one may be nearer
// soon: what is young was ahead.
func (k *Lock) agree(i int) error {
	p := &k.parts[i]
	var locks []engine.Lock
	for j, o := range k.parts {
		switch isSame := o.name == p.name && o.slot == p.slot; {
		case isSame && j < i:
			p.token = o.token
			return nil
		case isSame:
			locks = append(locks, o.lock)
		}
	}
	when, tries := k.schedule()
	if !tries {
		when.Retries = Forever
	}
	f, err := p.at.engine.Repeat(k.ctxOfCaller(), k.terms(), when, func() (f *core.Failure, worth int, err error) {
		if p.token, f = sets.Agree(k.ctxOfCaller(), locks); f != nil && f.Kind == core.NotHeld {
			f = nil // complete notices it
		}
		return f, 0, k.ctxOfCaller().Err()
	})
	if f != nil || err != nil {
		return k.errorIn(p.at, k.name, f, err)
	}
	return nil
}

// leave says that the presences need not end the Lock any more.
func (k *Lock) leave() {
	if k.locker.groups != nil {
		for _, p := range k.places() {
			p.member.Leave(k.bond)
		}
	}
}

// explain makes the error of a set that was not acquired.
func (c *call) explain(parts []part, f *sets.Failure, ended error) error {
	if f == nil {
		return c.errorIn(parts[0].at, c.name, nil, ended)
	}
	of := parts[max(f.Target, 0)]
	err := c.errorIn(of.at, of.name, f.Failure, ended)
	var e *QuorumError
	if c.names == nil || !errors.As(err, &e) {
		return err
	}
	e.Name = c.name
	for _, i := range f.InTheWay {
		e.InTheWay = append(e.InTheWay, parts[i].name)
	}
	e.InTheWay = slices.Compact(slices.Sorted(slices.Values(e.InTheWay)))
	if e.Causes != nil { // tell the name
		named := &multierror.Error{}
		for _, cause := range e.Causes.Errors {
			var node *NodeError
			if errors.As(cause, &node) {
				of := *node
				of.Err = fmt.Errorf("%q: %w", parts[max(f.Target, 0)].name, node.Err)
				cause = &of
			}
			named = multierror.Append(named, cause)
		}
		e.Causes = named
	}
	return e
}

// takePermits takes permits of a name. While a change of the map moves the name they are the same slots in both
// groups.
func (k *Lock) takePermits(parts []part) error {
	s, p := k.settings, parts[0].at
	if k.adopts != "" {
		return k.adoptPermit(p)
	}
	terms := k.terms()
	if len(parts) > 1 { // as the first is while the other is waited for
		renewed := *terms
		renewed.Renew, renewed.MaxHold = true, 0
		terms = &renewed
	}
	want := semaphore.Want{Key: p.prefix + k.name, K: s.permits, Weight: max(1, s.weight), Terms: terms}
	var got *semaphore.Permits
	var f *core.Failure
	var err error
	if when, tries := k.schedule(); tries {
		want.Try = true
		f, err = p.engine.Repeat(k.ctxOfCaller(), terms, when, func() (f *core.Failure, worth int, err error) {
			got, f, err = p.permits.Acquire(k.ctxOfCaller(), want)
			return f, 0, err
		})
	} else {
		got, f, err = p.permits.Acquire(k.ctxOfCaller(), want)
	}
	if got == nil {
		return k.errorIn(p, k.name, f, err)
	}
	k.has, k.bond, k.slots = got, got.Bond, got.Slots
	for i, l := range got.Locks() {
		k.parts = append(k.parts, part{name: k.name, at: p, slot: got.Slots[i], lock: l})
	}
	if len(parts) > 1 {
		if err := k.takeTwins(parts[1].at, terms); err != nil {
			got.Drop()
			return err
		}
	}
	return k.join()
}

// takeTwins takes the slots that the Lock has in the other group as well.
func (k *Lock) takeTwins(p *place, until *core.Terms) error {
	c := call{locker: k.locker, settings: k.settings, ctx: k.ctxOfCaller(), events: k.call.events, name: k.name, isTry: k.isTry}
	c.settings = &settings{}
	*c.settings = *k.settings
	c.settings.terms = *until
	if len(k.slots) > 1 { // two that want several take turns
		gate, err := c.ask(p, k.name, keys.Gate.Of(p.prefix+k.name))
		if err != nil {
			return err
		}
		defer gate.Drop()
	}
	for _, slot := range k.slots {
		lock, err := c.ask(p, k.name, keys.Slot(p.prefix+k.name, slot))
		if err != nil {
			return err
		}
		k.bond.Add(lock)
		k.parts = append(k.parts, part{name: k.name, at: p, slot: slot, lock: lock})
	}
	if !k.settings.renew || k.settings.maxHold > 0 {
		if _, f := k.bond.Extend(k.ctxOfCaller()); f != nil && f.Kind != core.NotHeld {
			return k.errorIn(p, k.name, f, k.ctxOfCaller().Err())
		}
		k.bond.Change(k.terms())
	}
	return nil
}

// adoptPermit adopts the permit that has the value.
func (k *Lock) adoptPermit(p *place) error {
	slot, err := k.slotWith(p)
	if err != nil {
		return err
	}
	lock, err := k.ask(p, k.name, keys.Slot(p.prefix+k.name, slot))
	if err != nil {
		return err
	}
	k.bond = &engine.Bond{}
	k.bond.Add(lock)
	k.has, k.slots, k.parts = k.bond, []int{slot}, []part{{name: k.name, at: p, slot: slot, lock: lock}}
	return k.join()
}
