package redlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/lease"
)

// A lock can have several parts, each in another group: names of a set, or one name whose group
// changes. Each part is a Lock of its own, and the first of them is the caller's, with the others as
// its company: it is held while all are, and they are released when it ends.

// A part is what is locked in one group.
type part struct {
	group *group
	names []string
}

// merged returns the parts with one for each group, in the order in which all clients take them.
func merged(parts []part) (all []part) {
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.group.name, b.group.name) })
	for _, p := range parts {
		if n := len(all); n > 0 && all[n-1].group == p.group {
			all[n-1].names = append(all[n-1].names, p.names...)
		} else {
			all = append(all, p)
		}
	}
	return all
}

// acquire takes the part.
func (p part) acquire(ctx context.Context, of request) (*Lock, error) {
	l := p.group.locker
	switch {
	case of.all && of.try:
		return l.TryAcquireAll(ctx, p.names, of.opts...)
	case of.all:
		return l.AcquireAll(ctx, p.names, of.opts...)
	case of.try:
		return l.TryAcquire(ctx, p.names[0], of.opts...)
	}
	return l.Acquire(ctx, p.names[0], of.opts...)
}

// acquireSlot takes the part that is the same permit as another group's.
func (p part) acquireSlot(ctx context.Context, of request, slot int) (*Lock, error) {
	a, err := p.group.locker.begin(ctx, p.names[0], of.opts)
	if err != nil {
		return nil, err
	}
	s := *a.settings
	s.permits = 1
	a.settings, a.key = &s, keys.Slot(a.key, slot)
	if of.try {
		return a.conclude(a.once())
	}
	return a.conclude(a.wait())
}

// abandon releases the lock without waiting for the nodes.
func (k *Lock) abandon() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = k.release(ended)
}

// acquireParts takes one part after the other.
func acquireParts(ctx context.Context, of request, parts []part) (*Lock, error) {
	s, err := parts[0].group.locker.settings.with(of.opts)
	if err != nil {
		return nil, err
	}
	if !s.shared { // until the lock begins, whatever it is to be
		of.opts = append(slices.Clone(of.opts), Option{apply: func(s *settings) error { s.renew, s.maxHold = true, 0; return nil }})
	}
	for try := 0; ; try++ {
		lock, err := acquirePartsOnce(ctx, of, parts)
		if err == nil {
			if err = lock.begin(ctx, s); err == nil {
				return lock, nil
			}
			lock.abandon()
		}
		var failure *QuorumError
		if err == errPartLost {
			failure = &QuorumError{Op: protocol.OpAcquire.String(), Name: textOf(of.names), Err: errPartLost}
		} else if !errors.As(err, &failure) || failure.Err != errNoToken {
			return nil, err
		}
		if of.try || !s.again(try, failure) || ctx.Err() != nil {
			failure.Err = cmp.Or(ctx.Err(), ErrNoQuorum)
			return nil, failure
		}
		parts[0].group.locker.pauseFor(ctx, s.delay(try, failure))
	}
}

// pauseFor sleeps for d, or until ctx or the Locker ends.
func (l *Locker) pauseFor(ctx context.Context, d time.Duration) {
	p := l.parkers.Get()
	defer l.parkers.Put(p)
	p.WakeAfter(d)
	p.Sleep(ctx, l.closed)
}

// begin gives the lock and its company the caller's settings. One that is not to be renewed has its full
// TTL then.
func (k *Lock) begin(ctx context.Context, s *settings) error {
	if s.shared || s.renew && s.maxHold == 0 {
		return nil
	}
	for _, part := range append([]*Lock{k}, k.with.parts()...) {
		if err := part.extend(ctx); err != nil {
			return err
		}
		of := *part.settings
		of.renew, of.maxHold = s.renew, s.maxHold
		on := part.session
		on.mu.Lock()
		now := on.now()
		part.settings = &of
		if of.maxHold > 0 {
			part.tenure.EndBy = now.Add(of.maxHold)
		}
		if on.holder == part && part.phase == lease.Held { // it may have been handed over
			on.put(on.occupy(part, now))
		}
		on.mu.Unlock()
	}
	return nil
}

// acquirePartsOnce fails with errPartLost if a part ended before the last was there.
func acquirePartsOnce(ctx context.Context, of request, parts []part) (_ *Lock, err error) {
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	var locks []*Lock
	defer func() {
		if err != nil {
			for _, k := range locks {
				k.abandon()
			}
		}
	}()
	for _, p := range parts {
		var k *Lock
		if len(locks) > 0 && locks[0].settings.manyPermits() {
			k, err = p.acquireSlot(until, of, locks[0].Permit())
		} else {
			k, err = p.acquire(until, of)
		}
		if err != nil {
			if until.Err() != nil && ctx.Err() == nil {
				err = errPartLost
			}
			return nil, err
		}
		locks = append(locks, k)
		context.AfterFunc(k.Context(), cancel)
	}
	if locks[0].session.block != nil {
		if err := agreeOnToken(ctx, locks); err != nil {
			return nil, err
		}
	}
	if until.Err() != nil && ctx.Err() == nil {
		return nil, errPartLost
	}
	k := locks[0]
	k.join(&company{locks: locks[1:], names: of.names, all: of.all, released: make(chan struct{})})
	return k, nil
}

// agreeOnToken has each group accept the token that is the highest of them. A lock of either version of
// the map then gets a higher one, and has had a lower one.
func agreeOnToken(ctx context.Context, locks []*Lock) error {
	const most = 5 // others may have raised the counters of one group meanwhile
	wanted := int64(0)
	accepted := make([]int64, len(locks)) // by a majority of each group
	for i, k := range locks {
		accepted[i] = k.token
		wanted = max(wanted, k.token)
	}
	for range most {
		next := wanted
		for i, k := range locks {
			if accepted[i] == wanted {
				continue
			}
			higher, err := k.raiseTo(ctx, wanted)
			if err != nil {
				return err
			}
			if higher == 0 {
				accepted[i] = wanted
			}
			next = max(next, higher)
		}
		if next == wanted {
			for _, k := range locks {
				k.token = wanted
			}
			return nil
		}
		wanted = next
	}
	return &QuorumError{Op: protocol.OpAcquire.String(), Name: locks[0].Name(), Err: errNoToken}
}

// raiseTo has the nodes accept a token for a lock that has a lower one, and returns zero. If they have
// accepted higher ones it returns the next.
func (k *Lock) raiseTo(ctx context.Context, token int64) (int64, error) {
	s := k.session
	s.mu.Lock()
	c := s.claim
	s.mu.Unlock()
	c.block = &block{counter: c.block.counter, first: token, size: 1}
	r := s.locker.newRound(ctx, s.name, c.request(s.settings, protocol.OpRaise))
	r.ask()
	r.Wait(ctx, s.settings.timeout(), tokenDecided)
	state := r.State()
	switch q := state.Tally.Quorum(); {
	case accepted(&state) >= q:
		return 0, nil
	case state.Tally.Granted < q:
		kind := errNoToken
		if ctx.Err() != nil {
			kind = ctx.Err()
		}
		return 0, r.fail(&state, kind)
	}
	return r.nextToken(&state), nil
}

// A company is the other parts of a lock.
type company struct {
	locks []*Lock
	names []string // of the whole
	all   bool     // by AcquireAll

	began    atomic.Bool   // the release
	released chan struct{} // closed when it is over
	err      error         // of it
}

// join makes others the company of k, which no caller has yet.
func (k *Lock) join(others *company) {
	k.with = others
	for _, other := range others.locks {
		ctx := other.Context()
		context.AfterFunc(ctx, func() { k.loseWith(context.Cause(ctx)) })
	}
	context.AfterFunc(k.Context(), func() { others.release(context.Background()) })
}

// loseWith ends the lock because another part has ended.
func (k *Lock) loseWith(cause error) {
	now := k.session.now()
	why := lease.Along
	if errors.Is(cause, ErrClosed) {
		why = lease.Closed
	}
	if before, last, _ := k.end(why, &ending{cause, now}); before == lease.Held {
		k.endContext()
		if last {
			k.session.giveBack(now)
		} else {
			k.tellLoss()
		}
	}
}

// release releases the company, once. It returns the first error of a part that was lost, or that
// too few nodes confirmed.
func (c *company) release(ctx context.Context) error {
	if c == nil {
		return nil
	}
	if c.began.CompareAndSwap(false, true) {
		errs := make([]error, len(c.locks))
		var all sync.WaitGroup
		for i, k := range c.locks {
			all.Go(func() { errs[i] = k.release(ctx) })
		}
		all.Wait()
		c.err = cmp.Or(errs...)
		close(c.released)
	}
	select {
	case <-c.released:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The company's part in the methods of Lock. A lock in one group has none, which is nil.

func (c *company) parts() []*Lock {
	if c == nil {
		return nil
	}
	return c.locks
}

// least returns the shortest of left and what the company has left.
func (c *company) least(left time.Duration) time.Duration {
	for _, k := range c.parts() {
		left = min(left, k.Remaining())
	}
	return left
}

// each calls do for the parts until one fails.
func (c *company) each(do func(*Lock) error) error {
	for _, k := range c.parts() {
		if err := do(k); err != nil {
			return err
		}
	}
	return nil
}
