package group

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock/internal/guard"
)

// prove makes sure that the older of the client's versions is complete. One group knows, or there
// are no clients yet.
func (g *Groups) prove(ctx context.Context) error {
	if g.isProven.Load() {
		return nil
	}
	select {
	case g.proving <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.proving }()
	if g.isProven.Load() {
		return nil
	}
	isComplete, err := g.versions.judge(g.look(ctx))
	if err == nil && !isComplete {
		err = g.found(ctx)
	}
	g.isProven.Store(err == nil)
	return err
}

// found makes the older of the client's versions the first that there is: on all servers, which have
// none, before it completes it in one group. Another client that comes at the same time with another
// version meets it if both have one server in common.
func (g *Groups) found(ctx context.Context) error {
	base := g.versions.base
	for _, p := range g.places {
		p.writeFirst(ctx, founding(base))
	}
	seen := g.look(ctx)
	switch isComplete, err := g.versions.judge(seen); {
	case err != nil || isComplete:
		return err
	case slices.ContainsFunc(seen, func(s sight) bool { return !s.isWhole || s.lowest != founding(base) || s.highest != s.lowest }):
		return ErrNotYet
	}
	for _, p := range g.places {
		if err := p.write(ctx, completed(base)); err != nil {
			return err
		}
	}
	return nil
}

const (
	// keepEvery is how often a version is written anew: nodes forget marks one after the other, and
	// those that remember must be a majority.
	keepEvery = time.Hour
	// completeEvery is how often a client tries to complete its newest version.
	completeEvery = 5 * time.Second
	// changeWait is how long a version that is retired everywhere is waited for before the next is
	// complete, so that the fencing tokens of a name rise when it has come to another group. A token
	// is less than five TokenSlacks ahead of the clocks of the servers that accepted it, and as much again is for
	// groups whose clocks differ.
	changeWait = 10 * guard.TokenSlack
)

// keep is the goroutine in which a client completes its version of the map, and keeps that on the nodes. It
// ends with Close.
func (g *Groups) keep() {
	every := keepEvery
	if g.versions.base < g.versions.newest {
		every = completeEvery
	}
	for g.sleep(every/2 + g.config.Jitter(every/2)) {
		if !g.isProven.Load() {
			continue
		}
		if every == completeEvery && g.complete(g.closed) == nil {
			every = keepEvery
		}
		g.refresh(g.closed)
	}
}

// sleep returns after d, or false at Close.
func (g *Groups) sleep(d time.Duration) bool {
	over := make(chan struct{})
	defer g.config.Clock.AfterFunc(d, func() { close(over) }).Stop()
	select {
	case <-over:
		return true
	case <-g.closed.Done():
		return false
	}
}

// complete retires the older version in all its groups, and completes the newest one. It returns
// why that cannot be done yet.
func (g *Groups) complete(ctx context.Context) error {
	seen := g.look(ctx)
	if slices.ContainsFunc(seen, func(s sight) bool { return s.majority.proves(g.versions.newest) }) {
		return g.writeNewest(ctx, seen)
	}
	for _, p := range g.places { // also where another has retired it: that mark may have come too late for its lock
		if p.group.Joining {
			continue
		}
		if err := p.retire(ctx); err != nil {
			return err
		}
	}
	if !g.sleep(changeWait) {
		return ErrClosed
	}
	return g.writeNewest(ctx, seen)
}

// retire marks the older version as retired in the group, if no client has it as its newest.
func (p *Place) retire(ctx context.Context) error {
	base := p.groups.versions.base
	l, err := p.lock(ctx, base, false)
	if err != nil {
		return err
	}
	defer l.Drop()
	if err := p.write(ctx, retired(base)); err != nil {
		return err
	}
	if p.groups.config.Clock.Now() >= l.Deadline() {
		return ErrNotYet // a client may have come before the mark
	}
	return nil
}

// writeNewest writes the newest version, which is complete, in the groups that have not seen it.
func (g *Groups) writeNewest(ctx context.Context, seen []sight) (err error) {
	done := completed(g.versions.newest)
	for i, p := range g.places {
		if !p.group.Leaving && seen[i].majority < done {
			err = cmp.Or(err, p.write(ctx, done))
		}
	}
	return err
}

// refresh writes the stage of each group anew that no client has written for long, or that the group
// has forgotten. It never raises nodes to a founding stage, which is written where there is none only.
// Failures are left to the next time.
func (g *Groups) refresh(ctx context.Context) {
	all, base := g.look(ctx), g.versions.base
	known := g.versions.firstStage(all)
	for i, seen := range all {
		p := g.places[i]
		switch {
		case seen.err != nil:
		case seen.highest == 0 && !p.group.Joining && (seen.isWhole || known.proves(base)):
			p.writeFirst(ctx, known)
		case seen.majority == founding(base) && !p.group.Joining && known == completed(base):
			_ = p.write(ctx, known) // the client that founded it was interrupted
		case seen.majority > 0 && !seen.majority.isFounding() && g.config.Wall().Sub(seen.written) >= keepEvery:
			_ = p.write(ctx, seen.majority) // and not what a single node says
		}
	}
}
