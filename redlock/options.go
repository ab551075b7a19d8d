package redlock

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/sources"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

const (
	defaultTTL = 10 * time.Second
	minTTL     = 10 * time.Millisecond
	maxTTL     = 365 * 24 * time.Hour // far from where a server's arithmetic overflows
	maxName    = 1024                 // bytes, with the prefix

	defaultPatience = 3 * time.Second

	// Forever is the number of Retries of an Acquire that waits as long as its
	// context lets it.
	Forever = -1
)

// An Option changes a default. Given to New it holds for every lock of the
// Locker; given to Acquire, TryAcquire or Do for that lock only.
type Option struct{ apply func(*settings) error }

// A LockerOption changes a default of a whole Locker: an Option, or the result of one of
// MemoryGuard, MaxTTL, Prefix, Observe and Log, which make no sense for a single lock.
type LockerOption interface{ applyToLocker(*settings) error }

func (o Option) applyToLocker(s *settings) error {
	if o.apply == nil {
		return errors.New("was zero; make it with one of the package's functions")
	}
	return o.apply(s)
}

// lockerOnly is a LockerOption that is no Option.
type lockerOnly func(*settings) error

func (f lockerOnly) applyToLocker(s *settings) error { return f(s) }

// settings are what a lock is acquired with. They are never changed then, because locks share them.
type settings struct {
	choices
	prefix    string
	guard     bool
	maxTTL    time.Duration // zero: not set
	epoch     string        // the key of the epoch record; empty without guard
	clock     clock.Clock
	wall      func() time.Time
	observers []Observer
	tracers   []Tracer // those observers that are
	jitter    func(limit time.Duration) time.Duration
	variants  *variants  // made by the Locker
	terms     core.Terms // made of the choices by prepare
}

// choices are the settings that each acquisition can change.
type choices struct {
	ttl         time.Duration
	nodeTimeout time.Duration // zero: from the TTL
	patience    time.Duration // with an outage
	retries     int
	interval    time.Duration // zero: jittered
	renew       bool
	maxHold     time.Duration // zero: no limit
	fenced      bool
	fair        bool
	shared      bool
	permits     int    // zero: not set
	weight      int    // of the permits; zero: not set
	owner       string // empty: no label
}

func defaults() settings {
	return settings{
		choices: choices{ttl: defaultTTL, patience: defaultPatience, retries: Forever, renew: true},
		guard:   true,
		clock:   clock.System,
		wall:    time.Now,
		jitter:  func(limit time.Duration) time.Duration { return rand.N(limit) },
	}
}

// variants are the settings that acquisitions have made of a Locker's. Locks that are acquired with the
// same options share one, because it would be a fifth of what a held lock costs. Choices with the same
// hash share a place.
type variants struct {
	seed   maphash.Seed
	places [16]atomic.Pointer[settings]
}

// share returns settings with the choices of s: those of an acquisition before, or s.
func (v *variants) share(s *settings) *settings {
	place := &v.places[maphash.Comparable(v.seed, s.choices)%uint64(len(v.places))]
	if same := place.Load(); same != nil && same.choices == s.choices {
		return same
	}
	place.Store(s)
	return s
}

// TTL sets how long a lock lives on the servers after its holder vanished.
// Default 10 s, at least 10 ms, at most a year; parts of a millisecond are cut
// off, as Redis counts none.
func TTL(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < minTTL || d > maxTTL {
			return fmt.Errorf("TTL(%v): must be between %v and %v", d, minTTL, maxTTL)
		}
		s.ttl = d.Truncate(time.Millisecond)
		return nil
	}}
}

// NodeTimeout sets how long one vote waits for a majority of the nodes. Default 500 ms, or
// half the TTL if that is less. It must be above zero and below the TTL: time spent waiting
// is validity lost. A minority that does not answer is not waited for.
func NodeTimeout(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("NodeTimeout(%v): must be above zero", d)
		}
		s.nodeTimeout = d
		return nil
	}}
}

// Retries lets Acquire try n more times after a first try that failed, be it
// for contention or for an outage, and then give up. Zero makes it try once.
// Default Forever: as often as needed until its context ends, through an outage for its
// Patience.
func Retries(n int) Option {
	return Option{apply: func(s *settings) error {
		if n < Forever {
			return fmt.Errorf("Retries(%d): must not be negative, but for Forever (%d)", n, Forever)
		}
		s.retries = n
		return nil
	}}
}

// RetryInterval makes Acquire begin a try every d exactly, or as soon as the
// one before has ended if that takes longer. Default zero: short jittered waits
// that grow to 200 ms, cut short when the lock must have expired and, for a
// caller without Retries, when it may be free.
func RetryInterval(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("RetryInterval(%v): must not be negative", d)
		}
		s.interval = d
		return nil
	}}
}

// Patience sets for how long Acquire waits through an outage. While too many nodes fail or do not
// answer it asks again, after waits that grow to 200 ms, and returns ErrNoQuorum when no quorum has
// answered for d. The end of its context ends that sooner. Default 3 s, because a hiccup of servers
// or of the network is no outage. Zero reports each at once. It has no effect with Retries, which
// counts tries, and on TryAcquire, which waits for the node timeout.
func Patience(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("Patience(%v): must not be negative; zero reports an outage at once", d)
		}
		s.patience = d
		return nil
	}}
}

// Renew says whether a lock is extended every third of its TTL for as long as
// it is held, or up to a twelfth of the TTL before that: the moment is drawn by lot,
// so that locks which are taken together are not all renewed at the same moment.
// Default true. Without it a lock ends TTL after it was acquired, unless Extend is
// called, and is not handed over from another caller of the Locker, because then it
// would have less than a TTL.
func Renew(on bool) Option {
	return Option{apply: func(s *settings) error { s.renew = on; return nil }}
}

// MaxHold ends a lock d after it was acquired, however well it renews: a cap on
// what a stuck holder costs. Default zero: no limit. At most a year.
func MaxHold(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 || d > maxTTL {
			return fmt.Errorf("MaxHold(%v): must be between 0 (no limit) and %v", d, maxTTL)
		}
		s.maxHold = d
		return nil
	}}
}

// Exclusive makes the lock that of one holder alone. It takes back a Shared, Permits or Weight that was
// given before, or is the Locker's default. Default.
func Exclusive() Option {
	return Option{apply: func(s *settings) error { s.shared, s.permits, s.weight = false, 1, 1; return nil }}
}

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
// Readers of one Locker share what the nodes hold, whatever their settings: any number of them costs
// the nodes one entry, with the value and the label (see Owner) of the first, and the last to leave
// releases it.
//
// A reader has no fencing token, because no order among readers is needed, and a write needs the
// lock of a writer. Fenced or Permits together with Shared is an error. Fair does not apply to readers.
// Where Shared is a Locker's default, Exclusive takes it back for a writer. A reader learns of a loss at
// its next renewal, not within milliseconds as a writer does.
//
// A writer becomes a reader by Lock.Downgrade. A reader never becomes a writer: two that wait for
// it would wait for each other for ever. Release the lock and acquire it anew, and read again.
func Shared() Option {
	return Option{apply: func(s *settings) error { s.shared = true; return nil }}
}

// Permits lets k callers hold the lock at the same time, each with a permit of its own (see
// Lock.Permit): a semaphore. Never more than k hold it, and exactly k can while a majority of
// nodes is up. k is from 1 to 1,000; 1 is Exclusive, the default.
//
// Each permit is an exclusive lock on a slot, a key of its own. Slot 0 has the key of the plain
// name. So a client without Permits, or of another library, takes that slot when it locks the name,
// and counts as one holder. All clients of a name should have the same k. Where they differ the
// highest counts: a client with k = 3 uses slots 0 to 2, and one with k = 5 uses slots 0 to 4.
//
// All other options, but for Fair, mean for a permit what they mean for a lock. With Fenced the
// tokens rise within a slot, and those of different slots are not comparable: give the
// resource both, Lock.Permit and Lock.Fence. ErrHeld says that all k permits are held.
//
// A permit costs one vote as long as few are held. If the slot that is tried first is held, a node is
// asked which are free. Waiters have one node hint at all slots, so waiting with many permits
// costs that node memory: a tracked key for each slot.
func Permits(k int) Option {
	return Option{apply: func(s *settings) error {
		if k < 1 || k > maxPermits {
			return fmt.Errorf("Permits(%d): must be between 1 (the exclusive lock) and %d", k, maxPermits)
		}
		s.shared, s.permits = s.shared && k > 1, k
		return nil
	}}
}

// Weight makes the lock w of the k permits of its name, all or none, for a job that needs as much as w
// others: see Lock.Permits. w is from 1, the default, to k, and 128 at most. It is one Lock, which is
// extended and released as a whole, and ends as a whole when one of the permits is lost.
//
// Acquire waits for one permit after the other, as callers that want one do, and keeps those that it has
// meanwhile. So it gets its turn beside callers that want less, and permits can be held that nobody
// uses yet. Callers with a weight above 1 take turns at that, in all processes: they never wait for
// each other in a circle. TryAcquire waits some round trips for its turn, and for no permit. A caller
// that holds permits of the name already while it waits for more of them is not kept from doing so.
//
// It costs w + 1 round trips if all permits are free. With Retries or RetryInterval it asks for all
// at once each time, and may starve. Fenced together with a weight above 1 is an error, because a
// token is of one permit.
func Weight(w int) Option {
	return Option{apply: func(s *settings) error {
		if w < 1 || w > maxNames {
			return fmt.Errorf("Weight(%d): must be between 1 and %d", w, maxNames)
		}
		s.weight = w
		return nil
	}}
}

// maxNames bounds how many locks one call takes.
const maxNames = 128

// maxPermits is how many permits a name can have: a node looks at all slots in one step, and
// others wait for that.
const maxPermits = 1000

// Fenced gives the lock a fencing token, to be had from Lock.Fence. Default:
// none. It costs the nodes a script instead of a plain SET, and a second round
// trip where this machine's wall clock differs from a node's by more than two seconds, or
// is behind that of the holder before. Callers of one Locker hand the lock over to each other with
// tokens, too. Locks with and without tokens exclude each other.
func Fenced() Option {
	return Option{apply: func(s *settings) error { s.fenced = true; return nil }}
}

// Fair has the waiters of all clients that ask for it served in the order in which they
// began to wait. Default: a waiter takes its place in that order only when it has been refused, so one
// who comes at the right moment can get before it once.
//
// Each caller has a place of its own, so no lock is handed over among callers of one process: where many of
// them wait, and hold for less than a round trip, a lock that is not Fair goes round much faster.
//
// A quorum has no common order of arrival, so one node at a time keeps the queue of a name: the
// same one for all clients as long as it answers, and then another, to which the waiters tell how
// long they have waited. While that happens, and where a waiter is silent for a second, others can
// get before it. So can callers that do not ask for fairness, and TryAcquire, which does not wait.
// Safety does not depend on it.
//
// It costs a round trip to one node before each acquisition. It has no effect on readers (Shared).
func Fair() Option {
	return Option{apply: func(s *settings) error { s.fair = true; return nil }}
}

// MemoryGuard says whether a node that may have forgotten locks is kept from
// voting until the longest of them must have expired. A node may have forgotten
// when its server was restarted, flushed or failed over, and when it is new: a fresh set
// of servers is of no use for one TTL, once. Acquire waits that out; TryAcquire
// reports ErrNoQuorum, with an ErrQuarantine from each such node.
//
// Every node keeps on record the number of nodes and the TTLs in use. To start anew, for
// instance after a lock with a TTL of a day that shall not be waited for again, run the
// command redlock reset. If a majority of nodes forgets at once, the clients that come
// may not learn how long locks can be: see MaxTTL.
//
// Default true. Turn it off only where no server can forget (appendfsync
// always, no eviction), or where nothing depends on it. New refuses that for nodes that fail over.
// All clients of a set of servers should have it alike.
func MemoryGuard(on bool) LockerOption {
	return lockerOnly(func(s *settings) error { s.guard = on; return nil })
}

// MaxTTL sets the longest TTL that any client of the nodes uses, for the memory
// guard: where the other nodes cannot prove how long the locks were that a node has
// forgotten, it is in quarantine for at least so long. Default: this Locker's own TTL.
// Longer ones that nodes tell of are waited for in any case. Give the same to all clients
// if their TTLs differ. A longer TTL is then refused.
func MaxTTL(d time.Duration) LockerOption {
	return lockerOnly(func(s *settings) error {
		if d < minTTL || d > maxTTL {
			return fmt.Errorf("MaxTTL(%v): must be between %v and %v", d, minTTL, maxTTL)
		}
		s.maxTTL = d
		return nil
	})
}

// Prefix puts p before every name to make the key on the servers. Default
// empty.
//
// Clients that make one key of other prefixes and names exclude each other, and share readers,
// tokens, permits and the queue, because what nodes keep beside a lock is named by the whole key. But
// the memory guard has a record for each prefix, which knows nothing of the locks of others, whatever
// MaxTTL is: so give all clients of a key the same prefix, unless no node can forget. So has a map of
// groups (NewGroups) a version for each prefix.
func Prefix(p string) LockerOption {
	return lockerOnly(func(s *settings) error {
		if len(p) >= maxName {
			return fmt.Errorf("Prefix: %d bytes leave no room for names, keys have at most %d", len(p), maxName)
		}
		if keys.Reserved(p) {
			return fmt.Errorf("Prefix(%q): looks like a key of redlock's own; choose another", p)
		}
		s.prefix = p
		return nil
	})
}

// Observe has o told of what the Locker does; if o is a Tracer, with the
// context that it makes for each acquisition. Default: none. Given several
// times, each observer is told, independently of the others.
func Observe(o Observer) LockerOption {
	return lockerOnly(func(s *settings) error {
		if o == nil {
			return errors.New("Observe(nil): leave the option out where there is no observer")
		}
		s.observers = append(s.observers, o)
		if t, ok := o.(Tracer); ok {
			s.tracers = append(s.tracers, t)
		}
		return nil
	})
}

// Drift returns how much of a TTL is never used: one per cent and 2 ms, because the clocks of
// client and servers run at different rates. A lock ends so much earlier than its keys.
func Drift(ttl time.Duration) time.Duration { return quorum.Drift(ttl) }

// with returns s changed by the options of one lock, or s itself if there are none.
func (s *settings) with(opts []Option) (*settings, error) {
	if len(opts) == 0 {
		return s, nil
	}
	c := *s
	for _, o := range opts {
		if err := o.applyToLocker(&c); err != nil {
			return nil, fmt.Errorf("redlock: option %w", err)
		}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	c.prepare()
	return s.variants.share(&c), nil
}

// lockerSettings returns the defaults changed by the options of a Locker.
func lockerSettings(opts []LockerOption) (*settings, error) {
	s := defaults()
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("redlock: option is nil; leave it out")
		}
		if from, ok := o.(interface{ Sources() sources.Set }); ok {
			s.replace(from.Sources())
			continue
		}
		if err := o.applyToLocker(&s); err != nil {
			return nil, fmt.Errorf("redlock: option %w", err)
		}
	}
	if s.guard {
		s.epoch = s.prefix + record.Key
	}
	s.prepare()
	return &s, s.check()
}

// prepare makes the terms of the choices.
func (s *settings) prepare() {
	s.terms = core.Terms{
		TTL: s.ttl, Timeout: s.timeout(), MaxHold: s.maxHold, Renew: s.renew, Fenced: s.fenced, Owner: s.owner,
		Patience: s.patience, Shared: s.shared, Fair: s.inOrder(),
	}
}

// replace sets the sources of time and chance that a test gives.
func (s *settings) replace(of sources.Set) {
	if of.Clock != nil {
		s.clock = of.Clock
	}
	if of.Wall != nil {
		s.wall = of.Wall
	}
	if of.Jitter != nil {
		s.jitter = of.Jitter
	}
}

// check reports settings that do not go together.
func (s *settings) check() error {
	if s.nodeTimeout >= s.ttl {
		return fmt.Errorf("redlock: option NodeTimeout(%v): must be below the TTL, %v", s.nodeTimeout, s.ttl)
	}
	if s.maxTTL > 0 && s.ttl > s.maxTTL {
		return fmt.Errorf("redlock: option TTL(%v): is above the MaxTTL, %v", s.ttl, s.maxTTL)
	}
	if s.holdTogether() && s.fenced {
		return errors.New("redlock: option Shared(): readers have no fencing token; leave out Fenced, or use a Locker without it for readers; Exclusive takes Shared back")
	}
	if s.shared && s.permits > 1 {
		return fmt.Errorf("redlock: option Shared(): any number of readers hold a lock together; leave out Permits(%d), or take it back with Exclusive before Shared", s.permits)
	}
	switch {
	case s.weight <= 1:
	case s.weight > s.permits:
		return fmt.Errorf("redlock: option Weight(%d): there are %d permits: give Permits(k) with k of %d or more, or less weight", s.weight, max(1, s.permits), s.weight)
	case s.fenced:
		return fmt.Errorf("redlock: option Weight(%d): fencing tokens are of one permit each, and this is a lock of several; leave out Fenced", s.weight)
	}
	if s.inOrder() && s.permits > 1 {
		return fmt.Errorf("redlock: option Permits(%d): does not go together with Fair, which orders the waiters of one key; "+
			"leave Fair out: callers of one Locker are served in order without it", s.permits)
	}
	return nil
}

// timeout is how long one vote waits for a majority. The Redis documentation has 5 to 50 ms for a
// TTL of 10 s, because it asks one node after the other. Here all are asked at once, so that only a
// majority which does not answer costs time, and a pause of some hundred milliseconds of servers or
// of this process should cost no more than that.
func (s *settings) timeout() time.Duration {
	if s.nodeTimeout > 0 {
		return s.nodeTimeout
	}
	return min(500*time.Millisecond, s.ttl/2)
}

// checkName returns why a name is that of no lock, whose key has the prefix before it, or nil. Any bytes are allowed.
func checkName(prefix, name string) error {
	if name == "" {
		return errors.New("redlock: the name of a lock must not be empty")
	}
	if n := len(prefix) + len(name); n > maxName {
		return fmt.Errorf("redlock: the name of a lock is too long: %d bytes with its prefix, at most %d; hash it", n, maxName)
	}
	if keys.Reserved(prefix + name) {
		return fmt.Errorf("redlock: %q is a key of redlock's own; choose another name", name)
	}
	return nil
}

// anyNumber of callers can hold the lock at the same time.
const anyNumber = 0

// holders is how many callers can hold the lock at the same time, or anyNumber.
func (s *settings) holders() int {
	if s.shared {
		return anyNumber
	}
	return max(1, s.permits)
}

// holdTogether reports whether the lock's holders need not wait for each other.
func (s *settings) holdTogether() bool { return s.shared }

// inOrder reports whether the caller is served in order. Readers are not: they hold together.
func (s *settings) inOrder() bool { return s.fair && !s.holdTogether() }

// Reserved reports whether a lock with that key would stand in the way of the
// library's own keys on the servers, of any Locker with any prefix. Such keys are no
// locks, and Acquire refuses their names: those that begin as what a node keeps beside a lock
// does (redlock:fence: and the like), redlock:primary, and those that end with redlock:epoch or have
// redlock:map: in them, because they may stand behind a prefix.
func Reserved(key string) bool { return keys.Reserved(key) }
