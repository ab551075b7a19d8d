package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/agenda"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
	"github.com/redquorum/redquorum/redlock/internal/trust"
)

// Clients of different versions of the map can lock one name in different groups. So a client
// locks nothing in a group but under its presence there: the lock of a reader on the name of the
// newest version that it has. A client that gets the writer's lock of a version knows that no client of
// that version is left, and marks the version as retired in the group, so that none comes again.
//
//	clients have b  ──►  clients have b and b+1,  ──►  in each group of b:      ──►  in each group of b+1:
//	presence: b          lock moved names in both      writer's lock of b,           complete(b+1): clients
//	                     presence: b+1                 then the mark retired(b)      may have b+1 alone
//
// Two clients that have a version in common lock each name in one group that is the same. Those
// that have b alone and b+1 alone do not; of them the one ends, with its presence, before b is
// retired, and the other begins when b+1 is complete. internal/mapmodel tries all orders of events.

// A stage is how far the versions of the map have come: a mark (see mark.go) in each group, whose
// lower bits are the minute in which it was written.
type stage int64

// stageBits is the room for the minutes.
const stageBits = 32

// founding is the stage in which version v is the first that clients have, and not in all groups yet.
func founding(v int) stage { return stage(3 * v) }

// completed is the stage in which clients may have version v alone.
func completed(v int) stage { return stage(3*v + 1) }

// retired is the stage in which no client with version v as its newest can come any more.
func retired(v int) stage { return stage(3*v + 2) }

func (s stage) version() int { return int(s / 3) }

// proves reports whether version v is complete where a group has come to the stage. To found a later one
// proves nothing of those before.
func (s stage) proves(v int) bool { return s >= completed(v) && !s.isFounding() }

func (s stage) isFounding() bool { return s == founding(s.version()) }

// at is the mark for the stage, written now.
func (s stage) at(now time.Time) int64 { return int64(s)<<stageBits | now.Unix()/60 }

// versionName is the name whose mark has the stage. That has the Locker's prefix without the group's, so
// groups that have servers in common meet there.
const versionName = keys.Map + "version"

// presenceName is the name that clients with the version as their newest hold as readers.
func presenceName(version int) string { return keys.Map + strconv.Itoa(version) }

// A stageSight is what the servers of a group tell of its stage.
type stageSight struct {
	highest  stage
	majority stage // that most nodes have come to at least
	lowest   stage // that all nodes that told have come to at least
	whole    bool  // all nodes have told
	written  time.Time
	err      error
}

// look asks the servers of all groups for their stage, at the same time.
func (ms *membership) look(ctx context.Context) []stageSight {
	rounds := make([]*round, len(ms.all))
	for i, m := range ms.all {
		rounds[i] = m.askForStage(ctx)
	}
	seen := make([]stageSight, len(ms.all))
	for i, r := range rounds {
		seen[i] = stageOf(ctx, r)
	}
	return seen
}

func (m *member) look(ctx context.Context) stageSight { return stageOf(ctx, m.askForStage(ctx)) }

func (m *member) askForStage(ctx context.Context) *round {
	return m.group.askForMark(ctx, m.plain, versionName)
}

// stageOf waits for the answers of askForStage.
func stageOf(ctx context.Context, r *round) stageSight {
	r.Wait(ctx, r.group.settings.timeout(), ballot.Complete)
	marks, failure := r.marks(ctx)
	if failure != nil {
		return stageSight{err: failure}
	}
	slices.Sort(marks)
	q := quorum.Tally{Nodes: len(r.group.nodes)}.Quorum()
	highest := marks[len(marks)-1]
	return stageSight{
		whole:    len(marks) == len(r.group.nodes),
		lowest:   stage(marks[0] >> stageBits),
		highest:  stage(highest >> stageBits),
		majority: stage(marks[len(marks)-q] >> stageBits),
		written:  time.Unix(highest&(1<<stageBits-1)*60, 0),
	}
}

// write raises the group's stage, or writes the same one anew. It returns when a majority has come
// to it, or why not.
func (m *member) write(ctx context.Context, to stage) error {
	s := m.plain
	r := m.group.askToMark(ctx, s, versionName, mark{to.at(s.wall()), markLife})
	r.Wait(ctx, s.timeout(), ballot.Settled)
	if failure := r.unconfirmed(ctx, ErrMarked); failure == nil {
		return nil
	}
	// Others may have written it at the same time, each on some of the nodes.
	switch seen := m.look(ctx); {
	case seen.err != nil:
		return seen.err
	case seen.majority < to:
		return fmt.Errorf("redlock: group %q: version %d of the map: %w", m.name, to.version(), errMapHeld)
	}
	return nil
}

// markLife is how long a mark outlives its last writing.
const markLife = 10 * maxTTL

// A presenceOf is a Locker's presence in a group.
type presenceOf struct {
	now   atomic.Pointer[presence]
	mu    lockorder.Mutex[lockorder.Presence]
	going *arrival // under way, or nil
}

// An arrival is an attempt to enter a group. All callers that wait for it share its outcome.
type arrival struct {
	done chan struct{}
	err  error
}

// A turnstile lets one caller at a time ask the nodes.
type turnstile chan struct{}

// pass waits for the caller's turn. It reports false if ctx ends before.
func (t turnstile) pass(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turnstile) leave() { <-t }

// A presence is the lock under which a Locker uses a group. It ends once, and what was locked under
// it has ended then.
type presence struct{ until atomic.Int64 }

// end is when the presence ends if nothing renews it.
func (p *presence) end() clock.Instant { return clock.Instant(p.until.Load()) }

// presence returns the one that a session is, nil for none.
func (s *session) presence() *presence {
	if s.sharing == nil {
		return nil
	}
	return s.sharing.presence
}

// noPresence is one that has ended.
var noPresence = &presence{}

// presence returns that under which the acquisition's lock is to be, or nil for a lock that needs
// none.
func (a *acquisition) presence() *presence {
	if a.own {
		return nil
	}
	return a.group.member.current()
}

// current returns the presence of the Locker in the group, one that has ended if there is none; nil for a
// Locker of New.
func (m *member) current() *presence {
	if m == nil {
		return nil
	}
	return cmp.Or(m.presence.now.Load(), noPresence)
}

// isOver reports whether no lock can be held by now under the presence, if one is needed.
func (p *presence) isOver(now clock.Instant) bool { return p != nil && now >= p.end() }

// enter makes sure of the Locker's presence in the group, for the lock name.
func (m *member) enter(ctx context.Context, name string) error {
	if m == nil {
		return nil
	}
	if !m.current().isOver(m.group.settings.clock.Now()) {
		return nil
	}
	e := m.begin()
	if e == nil {
		return closedError(protocol.OpAcquire, name)
	}
	var err error
	select {
	case <-e.done:
		err = e.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if m.of.keeper.ctx.Err() != nil {
		return closedError(protocol.OpAcquire, name)
	}
	of := m.group.failure(name, errMapHeld)
	var failure *QuorumError
	switch {
	case errors.As(err, &failure):
		causes := failure.Causes
		of.Err, of.Causes, of.Votes = failure.Err, causes, failure.Votes
		if of.Err == ErrHeld {
			of.Err = errMapHeld
		}
	case err == nil || errors.Is(err, ErrMap) || errors.Is(err, ErrClosed):
		return err
	case !errors.Is(err, errMapHeld):
		of.Err = err
	}
	return of
}

// begin returns the arrival that is under way, and begins one if there is none. It is nil if the Locker
// is closed.
func (m *member) begin() *arrival {
	m.presence.mu.Lock()
	defer m.presence.mu.Unlock()
	if m.presence.going == nil && m.of.keeper.add() {
		e := &arrival{done: make(chan struct{})}
		m.presence.going = e
		go func() {
			defer m.of.keeper.all.Done()
			e.err = m.enterNow(m.of.keeper.ctx)
			m.presence.mu.Lock()
			m.presence.going = nil
			m.presence.mu.Unlock()
			close(e.done)
		}()
	}
	return m.presence.going
}

// enterNow is the arrival. Each of its steps waits for the node timeout at most.
func (m *member) enterNow(ctx context.Context) error {
	if !m.current().isOver(m.group.settings.clock.Now()) {
		return nil
	}
	if err := m.of.prove(ctx); err != nil {
		return err
	}
	k, err := m.group.ownLock(ctx, presenceName(m.of.newest), true)
	if err != nil {
		return err
	}
	// The stage is read behind the presence: a version that is retired later is not this one.
	if err := m.admit(ctx); err != nil {
		k.session.drop(lease.Released)
		return err
	}
	m.open(k)
	return nil
}

// admit returns why the Locker must not use the group, or nil. A group without a version gets one: its
// servers have forgotten, or it is joining, and clients that have it alone must not take themselves for
// the first. Where no other group knows the version all its servers must answer, because one that is away
// may remember.
func (m *member) admit(ctx context.Context) error {
	seen := m.look(ctx)
	if seen.err == nil && seen.highest == 0 {
		known := m.of.firstStage(m.of.look(ctx))
		if !seen.whole && !known.proves(m.of.base) {
			return errMapHeld
		}
		m.writeFirst(ctx, known)
		if seen = m.look(ctx); seen.err == nil && seen.majority == 0 {
			return errMapHeld
		}
	}
	return cmp.Or(seen.err, m.of.leftBehind(seen.highest))
}

// open makes k the presence.
func (m *member) open(k *Lock) {
	s := k.session
	p := s.presence()
	s.mu.Lock()
	if s.lease.Ended() == lease.Held {
		p.until.Store(int64(s.lease.Until()))
	}
	s.mu.Unlock()
	m.presence.now.Store(p)
	ctx := k.Context()
	context.AfterFunc(ctx, func() { m.group.loseUnder(p, m.absence(context.Cause(ctx))) })
}

// absence is the cause of locks whose presence has ended.
func (m *member) absence(cause error) error {
	if errors.Is(cause, ErrClosed) {
		return cause
	}
	return fmt.Errorf("redlock: %w: the Locker's presence in group %q ended: %w", ErrLost, m.name, cause)
}

// loseUnder ends the locks that are held under a presence that has ended.
func (g *group) loseUnder(p *presence, cause error) {
	for _, s := range g.agenda.All(func(s *session) bool { return s.lease.IsWithin(&p.until) }) {
		if s.end(lease.Along, cause) {
			g.agenda.Add(s, agenda.GiveBack)
		}
	}
}

// ownLock acquires a lock that stands for no name of a caller, and needs no presence. One that is
// shared is a presence.
func (g *group) ownLock(ctx context.Context, name string, shared bool) (*Lock, error) {
	s := g.settings
	s.shared, s.fenced, s.fair, s.permits, s.owner, s.renew, s.maxHold = shared, false, false, 1, "", true, 0
	a := &acquisition{group: g, settings: &s, name: name, key: s.prefix + name, own: true, ctx: ctx, eventCtx: ctx}
	return a.once()
}

// A proof is what a Locker knows of the older of its versions: whether it is complete.
type proof struct {
	asking turnstile
	done   atomic.Bool
}

// prove makes sure that the older of the Locker's versions is complete. One group knows, or there
// are no clients yet.
func (ms *membership) prove(ctx context.Context) error {
	if ms.proof.done.Load() {
		return nil
	}
	if !ms.proof.asking.pass(ctx) {
		return ctx.Err()
	}
	defer ms.proof.asking.leave()
	if ms.proof.done.Load() {
		return nil
	}
	isComplete, err := ms.judge(ms.look(ctx))
	if err == nil && !isComplete {
		err = ms.found(ctx)
	}
	if err != nil {
		return err
	}
	ms.proof.done.Store(true)
	return nil
}

// judge reports whether the older of the Locker's versions is complete. One group that tells so is
// enough. To a Locker with two versions it is enough, too, that its older one is founded in all groups,
// whether or not others found the newest. It returns false and no error if there are no clients yet, but for those
// that found the older version.
func (ms *membership) judge(seen []stageSight) (isComplete bool, err error) {
	var highest stage
	isFounded, isFirst := ms.base < ms.newest, true
	for i, s := range seen {
		highest = max(highest, s.highest)
		isComplete = isComplete || s.majority.proves(ms.base)
		isFounded = isFounded && (s.majority >= founding(ms.base) || !ms.all[i].isInBase())
		isFirst = isFirst && (s.highest == 0 || s.highest >= founding(ms.base))
		err = cmp.Or(err, s.err)
	}
	if over := ms.leftBehind(highest); over != nil {
		return false, over
	}
	switch {
	case isComplete || isFounded:
		return true, nil
	case err != nil:
		return false, err
	case !isFirst:
		return false, fmt.Errorf("redlock: %w: version %d of the groups' map is in use, and this client has version %d without it: "+
			"first give all clients both, as Joining and Leaving groups", ErrMap, highest.version(), ms.base)
	}
	return false, nil
}

// found makes the older of the Locker's versions the first that there is: on all servers, which have
// none, before it completes it in one group. Another client that comes at the same time with another
// version meets it if both have one server in common.
func (ms *membership) found(ctx context.Context) error {
	for _, m := range ms.all {
		m.writeFirst(ctx, founding(ms.base))
	}
	seen := ms.look(ctx)
	switch isComplete, err := ms.judge(seen); {
	case err != nil || isComplete:
		return err
	case slices.ContainsFunc(seen, func(s stageSight) bool { return !s.whole || s.lowest != founding(ms.base) || s.highest != s.lowest }):
		return errMapHeld
	}
	for _, m := range ms.all {
		if err := m.write(ctx, completed(ms.base)); err != nil {
			return err
		}
	}
	return nil
}

// firstStage is what a group gets that has no stage, where others have come to those: what they prove, so
// that clients of an older version do not begin in it. What is not certain is not made so.
func (ms *membership) firstStage(seen []stageSight) stage {
	first := founding(ms.base)
	for _, s := range seen {
		if s.majority.proves(ms.base) {
			first = max(first, s.majority)
		}
	}
	return first
}

// writeFirst writes a stage on nodes that have none. One that comes late changes nothing on others.
func (m *member) writeFirst(ctx context.Context, first stage) {
	g, s := m.group, m.plain
	r := g.newRound(ctx, versionName, protocol.Request{
		Op: protocol.OpAcquire, Key: s.markOf(versionName), Value: strconv.FormatInt(first.at(s.wall()), 10), TTL: markLife, Timeout: s.timeout(),
	})
	r.ask()
	r.Wait(ctx, s.timeout(), ballot.Complete)
}

// leftBehind is the error of a client whose versions are over at a stage, or nil.
func (ms *membership) leftBehind(at stage) error {
	if at < retired(ms.newest) {
		return nil
	}
	return fmt.Errorf("redlock: %w: version %d of the groups' map is over, and this client has no later one: "+
		"give it the map that the other clients have", ErrMap, ms.newest)
}

// A keeper is the goroutine in which a Locker completes its version of the map, and keeps that on
// the nodes. It also ends arrivals.
type keeper struct {
	ctx    context.Context // ends with the Locker
	cancel context.CancelFunc
	all    sync.WaitGroup // the goroutines

	mu      lockorder.Mutex[lockorder.Keeper]
	stopped bool
}

// add counts a goroutine, unless the Locker is closed.
func (k *keeper) add() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stopped {
		k.all.Add(1)
	}
	return !k.stopped
}

// keepEvery is how often a version is written anew: nodes forget marks one after the other, and
// those that remember must be a majority.
const keepEvery = time.Hour

// completeEvery is how often a Locker tries to complete its newest version.
const completeEvery = 5 * time.Second

// changeWait is how long a version that is retired everywhere is waited for before the next is
// complete, so that the fencing tokens of a name rise when it has come to another group. A token
// is less than 5S ahead of the clocks of the servers that accepted it, and as much again is for
// groups whose clocks differ.
const changeWait = 10 * trust.TokenSlack

// keep starts the keeper of l.
func (ms *membership) keep(l *Locker) {
	ctx, cancel := context.WithCancel(context.Background())
	ms.keeper.ctx, ms.keeper.cancel = ctx, cancel
	ms.keeper.all.Go(func() {
		parkers := &l.groups[0].parkers
		p := parkers.Get()
		defer parkers.Put(p)
		every := keepEvery
		if ms.base < ms.newest {
			every = completeEvery
		}
		for {
			p.WakeAfter(every/2 + l.settings.jitter(every/2))
			if p.Sleep(ctx, l.closed); ctx.Err() != nil || isDone(l.closed) {
				return
			}
			if !ms.proof.done.Load() {
				continue
			}
			if every == completeEvery && ms.complete(ctx, p) == nil {
				every = keepEvery
			}
			ms.refresh(ctx)
		}
	})
}

func (k *keeper) stop() {
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	k.cancel()
	k.all.Wait()
}

// stop ends the keeper, of a Locker that has one.
func (ms *membership) stop() {
	if ms != nil {
		ms.keeper.stop()
	}
}

// complete retires the older version in all its groups, and completes the newest one. It returns
// why that cannot be done yet.
func (ms *membership) complete(ctx context.Context, p *park.Parker) error {
	seen := ms.look(ctx)
	if slices.ContainsFunc(seen, func(s stageSight) bool { return s.majority.proves(ms.newest) }) {
		return ms.writeNewest(ctx, seen)
	}
	for _, m := range ms.all { // also where another has retired it: that mark may have come too late for its lock
		if !m.isInBase() {
			continue
		}
		if err := m.retire(ctx); err != nil {
			return err
		}
	}
	p.WakeAfter(changeWait)
	if p.Sleep(ctx, nil); ctx.Err() != nil {
		return ctx.Err()
	}
	return ms.writeNewest(ctx, seen)
}

// retire marks the older version as retired in the group, if no client has it as its newest.
func (m *member) retire(ctx context.Context) error {
	k, err := m.group.ownLock(ctx, presenceName(m.of.base), false)
	if err != nil {
		return err
	}
	defer k.session.drop(lease.Released)
	if err := m.write(ctx, retired(m.of.base)); err != nil {
		return err
	}
	if !k.Valid() {
		return errMapHeld // a client may have come before the mark
	}
	return nil
}

// writeNewest writes the newest version, which is complete, in the groups that have not seen it.
func (ms *membership) writeNewest(ctx context.Context, seen []stageSight) (err error) {
	for i, m := range ms.all {
		if m.isInNewest() && seen[i].majority < completed(ms.newest) {
			err = cmp.Or(err, m.write(ctx, completed(ms.newest)))
		}
	}
	return err
}

// refresh writes the stage of each group anew that no client has written for long, or that the group
// has forgotten. It never raises nodes to a founding stage, which is written where there is none only.
// Failures are left to the next time.
func (ms *membership) refresh(ctx context.Context) {
	all := ms.look(ctx)
	known := ms.firstStage(all)
	for i, seen := range all {
		m := ms.all[i]
		switch {
		case seen.err != nil:
		case seen.highest == 0 && m.isInBase() && (seen.whole || known.proves(ms.base)):
			m.writeFirst(ctx, known)
		case seen.majority == founding(ms.base) && m.isInBase() && known == completed(ms.base):
			_ = m.write(ctx, known) // the client that founded it was interrupted
		case seen.majority > 0 && !seen.majority.isFounding() && m.group.settings.wall().Sub(seen.written) >= keepEvery:
			_ = m.write(ctx, seen.majority) // and not what a single node says
		}
	}
}
