package membership

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/redquorum/redquorum/redlock/internal/park"
)

// A proof is what a Locker knows of the older of its versions: whether it is complete.
type proof struct {
	asking turnstile
	done   atomic.Bool
}

// prove makes sure that the older of the Locker's versions is complete. One group knows, or there
// are no clients yet.
func (m *Map) prove(ctx context.Context) error {
	if m.proof.done.Load() {
		return nil
	}
	if !m.proof.asking.pass(ctx) {
		return ctx.Err()
	}
	defer m.proof.asking.leave()
	if m.proof.done.Load() {
		return nil
	}
	isComplete, err := m.judge(m.Look(ctx))
	if err == nil && !isComplete {
		err = m.found(ctx)
	}
	if err != nil {
		return err
	}
	m.proof.done.Store(true)
	return nil
}

// judge reports whether the older of the Locker's versions is complete. One group that tells so is
// enough. To a Locker with two versions it is enough, too, that its older one is founded in all groups,
// whether or not others found the newest. It returns false and no error if there are no clients yet, but for those
// that found the older version.
func (m *Map) judge(seen []Sight) (isComplete bool, err error) {
	var highest Stage
	isFounded, isFirst := m.base < m.newest, true
	for i, s := range seen {
		highest = max(highest, s.Highest)
		isComplete = isComplete || s.Majority.Proves(m.base)
		isFounded = isFounded && (s.Majority >= founding(m.base) || !m.all[i].isInBase())
		isFirst = isFirst && (s.Highest == 0 || s.Highest >= founding(m.base))
		err = cmp.Or(err, s.Err)
	}
	if over := m.leftBehind(highest); over != nil {
		return false, over
	}
	switch {
	case isComplete || isFounded:
		return true, nil
	case err != nil:
		return false, err
	case !isFirst:
		return false, fmt.Errorf("redlock: %w: version %d of the groups' map is in use, and this client has version %d without it: "+
			"first give all clients both, as Joining and Leaving groups", ErrMap, highest.Version(), m.base)
	}
	return false, nil
}

// found makes the older of the Locker's versions the first that there is: on all servers, which have
// none, before it completes it in one group. Another client that comes at the same time with another
// version meets it if both have one server in common.
func (m *Map) found(ctx context.Context) error {
	for _, of := range m.all {
		of.writeFirst(ctx, founding(m.base))
	}
	seen := m.Look(ctx)
	switch isComplete, err := m.judge(seen); {
	case err != nil || isComplete:
		return err
	case slices.ContainsFunc(seen, func(s Sight) bool { return !s.whole || s.lowest != founding(m.base) || s.Highest != s.lowest }):
		return ErrNotYet
	}
	for _, of := range m.all {
		if err := of.write(ctx, completed(m.base)); err != nil {
			return err
		}
	}
	return nil
}

// firstStage is what a group gets that has no stage, where others have come to those: what they prove, so
// that clients of an older version do not begin in it. What is not certain is not made so.
func (m *Map) firstStage(seen []Sight) Stage {
	first := founding(m.base)
	for _, s := range seen {
		if s.Majority.Proves(m.base) {
			first = max(first, s.Majority)
		}
	}
	return first
}

// leftBehind is the error of a client whose versions are over at a stage, or nil.
func (m *Map) leftBehind(at Stage) error {
	if at < retired(m.newest) {
		return nil
	}
	return fmt.Errorf("redlock: %w: version %d of the groups' map is over, and this client has no later one: "+
		"give it the map that the other clients have", ErrMap, m.newest)
}

// complete retires the older version in all its groups, and completes the newest one. It returns
// why that cannot be done yet.
func (m *Map) complete(ctx context.Context, p *park.Parker) error {
	seen := m.Look(ctx)
	if slices.ContainsFunc(seen, func(s Sight) bool { return s.Majority.Proves(m.newest) }) {
		return m.writeNewest(ctx, seen)
	}
	for _, of := range m.all { // also where another has retired it: that mark may have come too late for its lock
		if !of.isInBase() {
			continue
		}
		if err := of.retire(ctx); err != nil {
			return err
		}
	}
	p.WakeAfter(changeWait)
	if p.Sleep(ctx, nil); ctx.Err() != nil {
		return ctx.Err()
	}
	return m.writeNewest(ctx, seen)
}

// retire marks the older version as retired in the group, if no client has it as its newest.
func (of *Member) retire(ctx context.Context) error {
	k, err := of.group.Lock(ctx, presenceName(of.in.base), false)
	if err != nil {
		return err
	}
	defer k.Drop()
	if err := of.write(ctx, retired(of.in.base)); err != nil {
		return err
	}
	if !k.Valid() {
		return ErrNotYet // a client may have come before the mark
	}
	return nil
}

// writeNewest writes the newest version, which is complete, in the groups that have not seen it.
func (m *Map) writeNewest(ctx context.Context, seen []Sight) (err error) {
	for i, of := range m.all {
		if of.isInNewest() && seen[i].Majority < completed(m.newest) {
			err = cmp.Or(err, of.write(ctx, completed(m.newest)))
		}
	}
	return err
}

// refresh writes the stage of each group anew that no client has written for long, or that the group
// has forgotten. It never raises nodes to a founding stage, which is written where there is none only.
// Failures are left to the next time.
func (m *Map) refresh(ctx context.Context) {
	all := m.Look(ctx)
	known := m.firstStage(all)
	for i, seen := range all {
		of := m.all[i]
		switch {
		case seen.Err != nil:
		case seen.Highest == 0 && of.isInBase() && (seen.whole || known.Proves(m.base)):
			of.writeFirst(ctx, known)
		case seen.Majority == founding(m.base) && of.isInBase() && known == completed(m.base):
			_ = of.write(ctx, known) // the client that founded it was interrupted
		case seen.Majority > 0 && !seen.Majority.isFounding() && m.config.Wall().Sub(seen.written) >= keepEvery:
			_ = of.write(ctx, seen.Majority) // and not what a single node says
		}
	}
}
