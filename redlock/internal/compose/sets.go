package compose

import (
	"context"
	"slices"

	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// A Set is several keys that a caller wants together.
type Set struct {
	Targets []engine.Target // at least one, without duplicates, in the order in which all clients take them
	Terms   *core.Terms     // terms of each target
}

// Get acquires all keys as the Schedule demands. Its results are the same as for Acquire or Try.
func (s *Set) Get(ctx context.Context, when engine.Schedule) (*engine.Bond, *core.Failure, error) {
	if when.InLine {
		return s.Acquire(ctx)
	}
	return s.Try(ctx, when)
}

// Try tries to acquire all keys at once, up to the number of tries in the Schedule. It keeps no key
// between two tries.
func (s *Set) Try(ctx context.Context, when engine.Schedule) (b *engine.Bond, f *core.Failure, err error) {
	f, err = s.Targets[0].Engine.Repeat(ctx, s.Terms, when, func(ctx context.Context) (*core.Failure, int, error) {
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

// worth returns the number of further tries after a failure. If two sets have each won a key of the
// other, the set that has won its first key tries again, and the other one gives up.
func worth(f *core.Failure, results []engine.Result) int {
	if f == nil || f.Kind != core.ByOther { // f is nil if the context has ended
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

// keep puts the locks won before the first failure into the Bond, and drops the others. It returns
// the number of kept locks.
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

// drop releases the acquired locks, without waiting for the nodes' answers.
func drop(results []engine.Result) {
	b := &engine.Bond{}
	for _, r := range results {
		if r.Hold != nil {
			b.Add(r.Lock)
		}
	}
	b.Drop()
}

// Acquire waits for all keys. With a context's error, the failure is the obstacle, if known.
func (s *Set) Acquire(ctx context.Context) (*engine.Bond, *core.Failure, error) {
	for {
		g := gathering{Set: s, bond: &engine.Bond{}, terms: s.Terms}
		if len(s.Targets) > 1 {
			g.terms = engine.KeepRenewed(s.Terms)
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

// A gathering is a set that acquires its keys, and keeps some while it waits for another.
type gathering struct {
	*Set
	bond   *engine.Bond
	terms  *core.Terms // terms until all keys are acquired
	waited bool
}

// all returns when all keys are acquired, or the Bond has ended.
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
		if err != nil { // the caller's context or the Bond has ended
			return nil, ctx.Err()
		}
	}
	switch {
	case g.terms == g.Terms:
	case !g.waited: // all locks were won together
		g.bond.Change(g.Terms)
	default:
		return g.bond.Settle(ctx, g.Terms, engine.Schedule{InLine: true})
	}
	return nil, nil
}

// A loss is the Owner of a Bond. The end of the Bond ends the wait for more keys.
type loss func()

// Ended implements engine.Owner.
func (l loss) Ended(engine.Lock) { l() }

// Extended implements engine.Owner.
func (loss) Extended(engine.Lock) {}

// try tries the missing keys up to the first one that a caller of the process holds or waits for.
// It returns the number of acquired keys.
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
