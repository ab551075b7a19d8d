package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/redlock/internal/compose"
)

// TryAcquireAll tries once to acquire all the names, like TryAcquire, and gets all or none. See
// AcquireAll for the names.
func (l *Locker) TryAcquireAll(ctx context.Context, names []string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, &call{isSet: true, names: names, isTry: true}, opts)
}

// AcquireAll waits for all the names, and returns one Lock for them. While the Lock is held, no
// other client holds any of the names. The Lock is extended and released as a whole, and ends as a
// whole when one of the names is lost.
//
// There are 1 to 128 names, in any order; duplicates are removed. Callers whose sets overlap cannot
// deadlock, unless one of them already holds another lock.
//
// If all names are free it takes one round trip. Otherwise AcquireAll waits for them one at a time,
// in the order of their bytes, and keeps the names that it has acquired. A large set is therefore
// served, and callers of single names in it may wait as long. With Retries or RetryInterval it
// requests all names at once each time, and may starve. With Fair it always waits for them one at a
// time.
//
// With Fenced each name has its own token (Lock.FenceOf). Shared and Permits are errors. Other
// options and errors are the same as for Acquire, and QuorumError.InTheWay lists the names that
// others hold. Observers get the votes for each name, and the other events for the lock as a whole.
func (l *Locker) AcquireAll(ctx context.Context, names []string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, &call{isSet: true, names: names}, opts)
}

// DoAll runs fn while it holds all the names, which it acquires like AcquireAll. Otherwise it is
// like Do.
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(context.Context) error, opts ...Option) error {
	return l.do(ctx, &call{isSet: true, names: names}, fn, opts)
}

// checkSet returns the reason the names cannot be locked together with these settings, or nil.
func (s *settings) checkSet(names []string) error {
	switch n := len(names); {
	case n == 0:
		return errors.New("redlock: no names: pass at least one")
	case n > maxNames:
		return fmt.Errorf("redlock: %d names, at most %d can be locked at once: lock one name that stands for all of them", n, maxNames)
	case s.Shared:
		return fmt.Errorf("redlock: acquire %q: readers lock one name at a time: omit Shared, or cancel it with Exclusive", textOf(names))
	case s.holders() > 1:
		return fmt.Errorf("redlock: acquire %q: permits belong to one name: omit Permits(%d), or cancel it with Exclusive", textOf(names), s.holders())
	}
	return nil
}

// takeSet acquires a hold of each name, all or none, in the order that all clients use.
func (k *Lock) takeSet() error {
	set := compose.Set{Terms: k.terms()}
	for _, name := range k.names {
		k.parts = append(k.parts, part{name: name, at: k.locker.placeOf(name)})
	}
	slices.SortStableFunc(k.parts, func(a, b part) int { return strings.Compare(a.at.name, b.at.name) })
	for _, p := range k.parts {
		set.Targets = append(set.Targets, p.target())
	}
	bond, f, err := set.Get(k.waiting, k.schedule())
	if bond == nil {
		return k.errorOf(f, err)
	}
	for i, l := range bond.Locks() {
		k.parts[i].lock = l
	}
	k.has = bond
	return nil
}

// takePermits acquires permits of the only name.
func (k *Lock) takePermits() error {
	of, terms := k.parts[0], k.terms()
	want := compose.Want{Key: of.target().Key, K: k.settings.permits, Weight: max(1, k.settings.weight), Terms: terms}
	got, f, err := of.at.permits.Get(k.waiting, want, k.schedule())
	if got == nil {
		return k.errorOf(f, err)
	}
	k.has, k.parts = got, nil
	for i, l := range got.Locks() {
		k.parts = append(k.parts, part{name: k.name, at: of.at, slot: got.Slots[i], lock: l})
	}
	return nil
}
