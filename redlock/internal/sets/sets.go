// Package sets takes several keys together, all or none. It has no protocol of its own: each key is a lock like
// any other, and a Bond of package engine ends all with the first that ends.
//
//	          ┌─ try all that are missing, in one packet ─ all won ─► all begin their TTL ─► Bond
//	Acquire ──┤                 │                                            ▲
//	          │  keep what comes before the first that was refused           │ none is missing
//	          │                 ▼                                            │
//	          └──◄── wait for that one, as any caller does, and keep it ─────┘
//
// # Why sets that wait never wait in a circle
//
// All clients take keys in one order: by the names of their groups of servers, and in a group by their bytes. A
// set waits only for a key behind all that it keeps: what a try has won behind the first that was refused is given
// back before the set waits. Of the sets that wait, the one that keeps the last key of all waits for no other set.
//
// # Why a set keeps its turn
//
// Tries alone would starve a large set beside callers that want single keys of it, because all keys are hardly
// ever free at one moment. A set waits in line once for each key that is not free, and nobody can take what it
// keeps, so it is done after as many waits as it has keys. What it keeps is renewed meanwhile, whatever the
// caller's terms are. If it loses one it begins anew.
//
// # What a set does not try
//
// It does not try keys that a caller of its process has or waits for, or those behind: it would pass a caller that
// came first, or give the rest back at once. It tries nothing while the turn of its process at the first key is
// over. Otherwise a process that takes the same set again and again would split the votes of the one that is to
// have it next, and it takes twice as long until one of them has it. At other keys its turn does not matter: a set
// that has the first of its keys had better be done with the rest. A Fair set tries nothing: it would pass callers of
// other processes.
package sets

import (
	"context"
	"slices"

	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// A Set is what a caller wants together.
type Set struct {
	Targets []engine.Target // at least one, without doubles, in the order in which all clients take them
	Terms   *core.Terms     // of each
}

// Get gets all keys as the Schedule says. It returns what Acquire or Try does.
func (s *Set) Get(ctx context.Context, when engine.Schedule) (*engine.Bond, *core.Failure, error) {
	if when.InLine {
		return s.Acquire(ctx)
	}
	return s.Try(ctx, when)
}

// Try tries to get all keys at once, as often as the Schedule says. Between two tries it keeps none of them.
func (s *Set) Try(ctx context.Context, when engine.Schedule) (b *engine.Bond, f *core.Failure, err error) {
	f, err = s.Targets[0].Engine.Repeat(ctx, s.Terms, when, func() (*core.Failure, int, error) {
		results, err := engine.TryAll(ctx, s.Targets, s.Terms)
		f := core.Worst(0, failures(results))
		if err != nil || f != nil {
			drop(results)
			return f, worth(f, results), err
		}
		b = &engine.Bond{}
		keep(b, results)
		return nil, 0, nil
	})
	return b, f, err
}

// worth is how many more tries a failure is worth. Of two sets that have each won a key of the other, the one that
// has won its first key tries again, and the other gives way.
func worth(f *core.Failure, results []engine.Result) int {
	if f == nil || f.Kind != core.ByOther { // nil: the context has ended
		return 0
	}
	if first := results[0].Failure; first == nil || first.Votes > 0 {
		return 1
	}
	return 0
}

func failures(results []engine.Result) (all []*core.Failure) {
	for _, r := range results {
		all = append(all, r.Failure)
	}
	return all
}

// keep puts what was won before the first failure into the Bond, and drops the rest. It returns how much it keeps.
func keep(b *engine.Bond, results []engine.Result) int {
	for i, r := range results {
		if r.Hold == nil {
			drop(results[i:])
			return i
		}
		b.Add(r.Lock)
	}
	return len(results)
}

// drop releases what was won, and does not wait for that.
func drop(results []engine.Result) {
	b := &engine.Bond{}
	for _, r := range results {
		if r.Hold != nil {
			b.Add(r.Lock)
		}
	}
	b.Drop()
}

// Acquire waits for all keys. With a context's error the failure is what was in the way, if that is known.
func (s *Set) Acquire(ctx context.Context) (*engine.Bond, *core.Failure, error) {
	for {
		g := gathering{Set: s, bond: &engine.Bond{}, terms: s.Terms}
		if len(s.Targets) > 1 {
			g.terms = engine.Kept(s.Terms)
		}
		f, err := g.all(ctx)
		if f == nil && err == nil {
			if _, isOver := g.bond.First(); isOver {
				continue
			}
			return g.bond, nil, nil
		}
		g.bond.Drop()
		return nil, f, err
	}
}

// A gathering is a set that gets its keys, and keeps what it has while it waits for another.
type gathering struct {
	*Set
	bond   *engine.Bond
	terms  *core.Terms // until all are there
	waited bool
}

// all returns when all keys are there, or the Bond has ended.
func (g *gathering) all(ctx context.Context) (*core.Failure, error) {
	inner, lose := context.WithCancel(ctx)
	defer lose()
	g.bond.Own(loss(lose))
	for missing := g.Targets; len(missing) > 0; {
		n, err := g.try(inner, missing)
		if missing = missing[n:]; err == nil && len(missing) > 0 {
			var f *core.Failure
			if f, err = g.wait(inner, missing[0]); f != nil && (err == nil || ctx.Err() != nil) {
				return core.Worst(len(g.Targets)-len(missing), []*core.Failure{f}), ctx.Err()
			}
			missing = missing[1:]
		}
		if err != nil { // the caller's context has ended, or the Bond
			return nil, ctx.Err()
		}
	}
	switch {
	case g.terms == g.Terms:
	case !g.waited: // all are of this moment
		g.bond.Change(g.Terms)
	default:
		if f := g.bond.Settle(ctx, g.Terms); f != nil {
			return f, ctx.Err()
		}
	}
	return nil, nil
}

// A loss is the Owner of a Bond whose end ends the waiting for more.
type loss func()

// Ended implements engine.Owner.
func (l loss) Ended(engine.Lock) { l() }

// Extended implements engine.Owner.
func (loss) Extended(engine.Lock) {}

// try tries the missing keys before the first that a caller of the process has or waits for. It returns how many
// it has got.
func (g *gathering) try(ctx context.Context, missing []engine.Target) (int, error) {
	n := slices.IndexFunc(missing, func(t engine.Target) bool { return t.Engine.IsWanted(t.Key) })
	if n < 0 {
		n = len(missing)
	}
	if n < 2 || g.Terms.Fair || len(missing) == len(g.Targets) && missing[0].Engine.IsTurnOver(missing[0].Key) {
		return 0, nil
	}
	results, err := engine.TryAll(ctx, missing[:n], g.terms)
	return keep(g.bond, results), err
}

// wait waits for a key.
func (g *gathering) wait(ctx context.Context, t engine.Target) (*core.Failure, error) {
	g.waited = true
	lock, f, err := t.Engine.Acquire(ctx, t.Key, g.terms)
	if lock.Hold != nil {
		g.bond.Add(lock)
	}
	return f, err
}
