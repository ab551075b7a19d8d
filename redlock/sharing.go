package redlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/membership"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// Shared makes the lock that of a reader: any number of readers hold a name together, and no
// writer beside them. A writer is whoever locks the name without Shared, also by a plain
// SET NX PX of another library. Default: a writer.
//
// Writers that wait in Acquire come before readers that come later, who wait for them. A writer
// that dies while it waits holds readers up for a second and two node timeouts. A writer waits for
// each reader that was there before, and no longer than that one's TTL if it has died. Readers and
// writers of one Locker are served in order, but readers that wait come in together; a reader that
// other processes have refused takes its place among the writers.
//
// Readers of one Locker share what the nodes hold, where their settings are alike: any number of
// them costs the nodes one entry, and the last to leave releases it. Readers that do not renew or
// have a MaxHold have an entry each.
//
// A reader has no fencing token, because no order among readers is needed, and a write needs the
// lock of a writer. Fenced together with Shared is an error. Fair does not apply to readers. Where
// Shared is a Locker's default, Exclusive takes it back for a writer. A reader learns of a loss at its next renewal, not within milliseconds as a writer does.
//
// A writer becomes a reader by Lock.Downgrade. A reader never becomes a writer: two that wait for
// it would wait for each other for ever. Release the lock and acquire it anew, and read again.
func Shared() Option {
	return Option{apply: func(s *settings) error { s.shared = true; return nil }}
}

// Exclusive makes the lock that of one holder alone: it takes back Shared and Permits, where those
// are the Locker's defaults. Of these three the one that is given last counts. Default.
func Exclusive() Option {
	return Option{apply: func(s *settings) error { s.shared, s.permits = false, 1; return nil }}
}

// sharesSession reports whether callers with these settings hold one session together.
func (s *settings) sharesSession() bool { return s.shared && s.renew && s.maxHold == 0 }

// sharesWith reports whether callers with settings s and of hold one session together.
func (s *settings) sharesWith(of *settings) bool {
	return s.sharesSession() && of.sharesSession() && s.ttl == of.ttl && s.timeout() == of.timeout() && s.owner == of.owner
}

// sharedKeys are the keys for the readers of a lock.
func sharedKeys(key string) *protocol.Shared {
	return &protocol.Shared{Readers: keys.Readers.Of(key), Intent: keys.Intent.Of(key)}
}

// Sharing a session.

// A session of readers has a hold of its own as its holder, which no caller has; the callers'
// holds are its sharers.
type sharing struct {
	locks     []*hold
	confirmed clock.Instant        // when the round began in which the nodes last let a new reader in
	presence  *membership.Presence // which it is, nil for none
}

// sharers returns the holds that callers have of a session that they share. The session must be locked.
func (s *session) sharers() []*hold {
	if s.sharing == nil {
		return nil
	}
	return s.sharing.locks
}

// openShared gives a new session of readers its holder and its first sharer, which it returns.
func (s *session) openShared(a *acquisition, since clock.Instant, now clock.Instant) *Lock {
	holder, k := &hold{}, a.newLock(s, now)
	holder.open(context.Background(), s, s.settings, now)
	holder.quiet = k.quiet
	holder.tenure.Since, k.tenure.Since = since, since
	s.occupy(holder, now)
	s.sharing = &sharing{locks: []*hold{&k.hold}, confirmed: since}
	if a.own {
		s.sharing.presence = &membership.Presence{}
	}
	return k
}

// readers returns the session that a reader of this process can share, or nil.
func (q *queue) readers(a *acquisition) *session {
	if !a.settings.sharesSession() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[a.key]
	if ln == nil {
		return nil
	}
	for _, s := range ln.holders {
		if s.settings.sharesWith(a.settings) && s.isValid() {
			return s
		}
	}
	return nil
}

// attemptShared is attempt for a reader: it shares the session of other callers, if there is
// one.
func (a *acquisition) attemptShared(first ballot.Plan) (*Lock, error) {
	for {
		s := a.group.queue.readers(a)
		if s == nil {
			return a.attempt(first)
		}
		if !s.isConfirmed() {
			r, err := a.confirm(s)
			switch {
			case err != nil:
				return nil, err
			case r == nil: // the session has ended
				continue
			}
		}
		if k := s.join(a); k != nil {
			a.group.tell(Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name}, k.tenure.Since, &k.hold)
			return k, nil
		}
	}
}

// isConfirmed reports whether the session can be joined without asking the nodes whether a writer has
// begun to wait: within a turn. A waiting writer is held up by that much.
func (s *session) isConfirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return now < s.sharing.confirmed.Add(turnLength(s.cost)) && s.lease.Until().Sub(now) >= s.settings.ttl/2
}

// join makes another Lock that shares the session, or returns nil if that has ended.
func (s *session) join(a *acquisition) *Lock {
	now := s.now()
	k := a.newLock(s, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lease.IsValid(now) {
		return nil
	}
	k.place = int32(len(s.sharing.locks))
	s.sharing.locks = append(s.sharing.locks, &k.hold)
	return k
}

// leave takes k out of those that share the session. It reports whether k was the last, as one
// is that shares it with nobody. The session must be locked.
func (s *session) leave(k *hold) (last bool) {
	n := len(s.sharers()) - 1
	if n <= 0 {
		return true
	}
	locks := s.sharing.locks
	locks[k.place] = locks[n]
	locks[k.place].place = k.place
	s.sharing.locks = slices.Delete(locks, n, n+1)
	return false
}

// confirm asks the nodes once more for a session that this process holds, as for a new reader:
// they refuse if a writer waits. If a quorum grants, the round is returned, by which the session is
// extended, too. Both are nil if the session has ended.
func (a *acquisition) confirm(s *session) (*round, error) {
	g := a.group
	if !g.inflight.begin() {
		return nil, closedError(protocol.OpAcquire, a.name)
	}
	defer g.inflight.done()
	s.mu.Lock()
	if s.lease.Ended() != lease.Held {
		s.mu.Unlock()
		return nil, nil
	}
	r := g.newRound(a.eventCtx, a.name, s.claim.request(s.settings, s.ops.acquire))
	a.askedAt = r.Start()
	s.lease.Asking(r)
	s.lease.MayHold(g.voters.All())
	r.listenFor(s)
	s.mu.Unlock()
	asked := false
	r.AskIf(g.voters.All(), &r.req, r, func() bool { asked = s.isValid(); return asked })
	if !asked {
		return nil, nil
	}
	limit := s.settings.timeout()
	r.Wait(a.ctx, limit, ballot.Decided)
	r.WaitForRecords(a.ctx, 2*limit, ballot.Decided)
	s.learn(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	state := r.State()
	if ballot.IsWon(&state) && s.now() < quorum.Deadline(r.Start(), s.settings.ttl) {
		s.sharing.confirmed = max(s.sharing.confirmed, r.Start())
		return r, nil
	}
	if isDone(g.closed) {
		return nil, closedError(protocol.OpAcquire, a.name)
	}
	err := r.fail(&state, failureOf(a.ctx, &state, state.Tally))
	err.Remaining = freeIn(&state, &state)
	g.tell(Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name, Votes: err.Votes, Err: err}, r.Start(), nil)
	return nil, err
}

// Writers that wait.

// intentLife is how long readers make way for a writer that says nothing any more. A waiting
// writer says so again with each try that asks all nodes.
func (s *settings) intentLife() time.Duration { return time.Second + 2*s.timeout() }

// mostTraceless is how many tries in a row may be refused by clients that have gone when the undo
// comes. Writers leave so as well, so one such try says nothing.
const mostTraceless = 5

// intend has new readers wait for this writer, on all nodes, when it has learned that readers are
// in the way: also where there are none at that moment. Otherwise it would starve behind readers
// that come before each of its tries and leave before the undo.
func (a *acquisition) intend(undo *ballot.State, refused quorum.Set) {
	if a.parker == nil {
		return
	}
	a.seenAt, a.unseen = a.settings.clock.Now(), 0
	if a.intent == "" && !foundReaders(undo) && !a.mayBeReaders(undo, refused) {
		return
	}
	if a.intent == "" {
		a.intent = newValue()
		a.group.inflight.add() // until it is withdrawn
	}
	a.submitIntent(a.settings.intentLife())
}

// mayBeReaders reports whether those who refuse keep going before they can be seen.
func (a *acquisition) mayBeReaders(undo *ballot.State, refused quorum.Set) bool {
	if a.settings.shared || a.settings.manyPermits() {
		return false // no writer of the name alone
	}
	gone := false
	for i := range undo.Len() {
		switch reply := undo.Reply(i); {
		case !refused.Has(i) || reply.Outcome != protocol.Refused:
		case reply.TTL == 0:
			gone = true
		default: // a writer
			a.traceless = 0
			return false
		}
	}
	if gone {
		a.traceless++
	}
	return a.traceless > mostTraceless
}

// withdraw takes the intent back, because the writer has the lock, waits no more, or is not the first
// of those who wait. Only Close waits for the answers, because a process that ends must not keep
// readers out for intentLife.
func (a *acquisition) withdraw() {
	if a.intent != "" {
		a.submitIntent(0)
		a.intent = ""
		a.group.inflight.done()
	}
}

func (a *acquisition) submitIntent(life time.Duration) {
	req := &protocol.Request{
		Op: protocol.OpIntend, Key: a.key, Value: a.intent, TTL: life.Truncate(time.Millisecond),
		Timeout: a.settings.timeout(), Shared: sharedKeys(a.key),
	}
	req.Shared.Regardless = true
	g := a.group
	for _, n := range g.nodes { // where that fails it runs out by itself
		g.inflight.add()
		if n.Submit(req, 0, answered{g}) != nil {
			g.inflight.done()
		}
	}
}

// answered takes the reply to a request of which nothing matters but that Close waits for it.
type answered struct{ group *group }

// Receive implements protocol.Receiver.
func (d answered) Receive(int, protocol.Reply) { d.group.inflight.done() }

// maxUnseen is how long a writer may follow the hints of one node, and be refused there, before it
// asks all nodes who refuses. Readers that come and go make hints, and one node alone refuses
// without a word of who is there.
const maxUnseen = time.Second

// mostUnseen is how often it may be refused there in a row: where readers of many processes come and
// go all the time it learns of them soon.
const mostUnseen = 8

// mustSee reports whether it is time for a writer to ask all nodes: so that it learns of readers, or
// that the nodes hear of its intent.
func (a *acquisition) mustSee() bool {
	if a.settings.shared || a.seenAt == 0 {
		return false
	}
	limit := maxUnseen
	a.unseen++
	if a.intent != "" || a.traceless > 0 {
		limit = wait.Longest
	}
	return limit == maxUnseen && a.unseen > mostUnseen || a.settings.clock.Now() >= a.seenAt.Add(limit)
}

// foundReaders reports whether a node has said that the key has readers.
func foundReaders(s *ballot.State) bool {
	for i := range s.Len() {
		if s.Reply(i).Readers {
			return true
		}
	}
	return false
}

// Downgrade makes a writer's lock that of a reader, without a moment between in which another
// writer could have it: readers come in, and the lock goes on under the same Context. It
// extends the lock as Extend does, and has the same errors. After an error other than ErrLost,
// ErrReleased and ErrClosed the lock is still held, as a reader's by some nodes and as a writer's
// by others, and the next renewal or Downgrade goes on with it. For a reader it is Extend. The
// fencing token stays what it was, and orders no write that comes after. Locks of several names and
// those with Permits stay what they are: Downgrade is an error for them, and changes nothing.
func (k *Lock) Downgrade(ctx context.Context) error {
	s := k.session
	if ctx == nil {
		return nilContext(protocol.OpExtend, s.name)
	}
	switch { // readers lock one name, and have one set for it
	case len(k.Names()) > 1:
		return fmt.Errorf("redlock: downgrade %q: readers lock one name at a time, and this is a lock of several names: keep it, or release it", k.Name())
	case s.settings.manyPermits():
		return fmt.Errorf("redlock: downgrade %q: a permit is no writer's lock: keep it, or release it", s.name)
	}
	defer s.group.awaitObservers()
	for _, part := range k.holds() {
		if err := part.downgrade(ctx); err != nil {
			return err
		}
	}
	return nil
}

// downgrade is Downgrade for one hold.
func (k *hold) downgrade(ctx context.Context) error {
	s := k.session
	s.mu.Lock()
	watched := false
	if k.phase == lease.Held && s.ops != sharedOps {
		s.ops, s.block, s.shared = sharedOps, nil, sharedKeys(s.key)
		watched = s.lease.Downgrade()
	}
	s.mu.Unlock()
	if watched {
		s.group.watches.remove(s)
	}
	if err := extendAll(ctx, []*hold{k}); err != nil {
		return err
	}
	s.group.queue.changed(s.key)
	return nil
}
