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
	"math"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// A Set is what a caller wants together.
type Set struct {
	Targets []engine.Target // at least one, without doubles, in the order in which all clients take them
	Terms   *core.Terms     // of each
}

// A Failure is why a set was not acquired.
type Failure struct {
	*core.Failure       // the worst of all keys, with the fewest votes and the longest time Remaining
	Target        int   // which that is of, by its index; negative: of all
	InTheWay      []int // the Targets that others hold
}

// Get gets all keys as the Schedule says. It returns what Acquire or Try does.
func (s *Set) Get(ctx context.Context, when engine.Schedule) (*engine.Bond, *Failure, error) {
	if when.InLine {
		return s.Acquire(ctx)
	}
	return s.Try(ctx, when)
}

// Try tries to get all keys at once, as often as the Schedule says. Between two tries it keeps none of them.
func (s *Set) Try(ctx context.Context, when engine.Schedule) (b *engine.Bond, f *Failure, err error) {
	worst, err := s.Targets[0].Engine.Repeat(ctx, s.Terms, when, func() (*core.Failure, int, error) {
		results, err := engine.TryAll(ctx, s.Targets, s.Terms)
		if err == nil || f == nil { // else Repeat returns the failure of the try before
			f = explain(0, results)
		}
		switch {
		case err != nil:
			drop(results)
			return f.of(), 0, err
		case f != nil:
			drop(results)
			return f.of(), worth(f, results), nil
		}
		b = &engine.Bond{}
		keep(b, results)
		return nil, 0, nil
	})
	if f != nil {
		f.Failure = worst
	}
	return b, f, err
}

// worth is how many more tries a failure is worth. Of two sets that have each won a key of the other, the one that
// has won its first key tries again, and the other gives way.
func worth(f *Failure, results []engine.Result) int {
	if first := results[0].Failure; f.Kind == core.ByOther && (first == nil || first.Votes > 0) {
		return 1
	}
	return 0
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

// Acquire waits for all keys. With a context's error the Failure is what was in the way, if that is known.
func (s *Set) Acquire(ctx context.Context) (*engine.Bond, *Failure, error) {
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
func (g *gathering) all(ctx context.Context) (*Failure, error) {
	inner, lose := context.WithCancel(ctx)
	defer lose()
	g.bond.Own(loss(lose))
	for missing := g.Targets; len(missing) > 0; {
		n, err := g.try(inner, missing)
		if missing = missing[n:]; err == nil && len(missing) > 0 {
			var f *core.Failure
			if f, err = g.wait(inner, missing[0]); f != nil && (err == nil || ctx.Err() != nil) {
				return explain(len(g.Targets)-len(missing), []engine.Result{{Failure: f}}), ctx.Err()
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
			return &Failure{Failure: f, Target: -1}, ctx.Err()
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

func (f *Failure) of() *core.Failure {
	if f == nil {
		return nil
	}
	return f.Failure
}

// explain makes one Failure of those of all keys, the Targets from first on; nil: there is none.
func explain(first int, results []engine.Result) *Failure {
	var all *Failure
	var left time.Duration
	votes := math.MaxInt
	for i, r := range results {
		f := r.Failure
		if f == nil {
			continue
		}
		if all == nil {
			all = &Failure{Failure: f, Target: first + i}
		} else if severity(f.Kind) > severity(all.Kind) {
			all.Failure, all.Target = f, first+i
		}
		if isHeld(f) {
			all.InTheWay = append(all.InTheWay, first+i)
		}
		if left != protocol.NoTTL && (f.Remaining == protocol.NoTTL || f.Remaining > left) {
			left = f.Remaining
		}
		votes = min(votes, f.Votes)
	}
	if all != nil {
		worst := *all.Failure
		worst.Remaining, worst.Votes = left, votes
		all.Failure = &worst
	}
	return all
}

// severity is how much a failure says of the whole: an outage of one key is more than that another is held.
func severity(k core.Kind) int {
	switch k {
	case core.ByOther, core.ByUs:
		return 1
	case core.NoQuorum:
		return 2
	case core.AfterClose:
		return 3
	}
	return 0
}

// isHeld reports whether another holds the key that the failure is about.
func isHeld(f *core.Failure) bool {
	return f.Kind == core.ByOther || f.Kind == core.ByUs ||
		slices.ContainsFunc(f.Answers, func(a core.Answer) bool { return a.Outcome == protocol.Refused })
}
