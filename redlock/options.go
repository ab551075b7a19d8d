package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

const (
	defaultTTL = 10 * time.Second
	minTTL     = 10 * time.Millisecond
	maxTTL     = 365 * 24 * time.Hour // far below an overflow of a server's arithmetic
	longTTL    = time.Hour            // a longer TTL needs MaxTTL
	maxName    = 1024                 // bytes, including the prefix

	defaultPatience = 3 * time.Second

	// Forever is the number of Retries of an Acquire without a limit.
	Forever = -1
)

// An Option changes a default. Passed to New, it applies to every lock of the Locker; passed to
// Acquire, TryAcquire or Do, only to that lock.
type Option struct{ apply func(*settings) error }

// A LockerOption changes a default of a whole Locker. It is an Option, or the result of
// MemoryGuard, MaxTTL, Prefix, Observe or Log.
type LockerOption interface{ applyToLocker(*settings) error }

func (o Option) applyToLocker(s *settings) error {
	if o.apply == nil {
		return errors.New("redlock: option was zero: make it with one of the package's functions")
	}
	return o.apply(s)
}

// A lockerOnly is a LockerOption that is not an Option.
type lockerOnly func(*settings) error

func (f lockerOnly) applyToLocker(s *settings) error { return f(s) }

// settings are the settings of an acquisition. Locks share them, so they never change afterwards.
type settings struct {
	choices
	prefix      string
	guard       bool
	maxTTL      time.Duration // zero if not set
	clock       clock.Clock
	wall        func() time.Time
	observers   []Observer
	tracers     []Tracer // observers that are Tracers
	jitter      func(limit time.Duration) time.Duration
	optionCache *optionCache // created by the Locker
}

// choices are the settings that each acquisition can change. They are comparable, because locks with
// the same choices share them. An option that changes the request to the nodes also belongs to
// core.Claim.matches.
type choices struct {
	core.Terms                // prepare sets Timeout and Fair
	nodeTimeout time.Duration // zero for the default, from the TTL
	retries     int
	interval    time.Duration // zero for random pauses
	wait        time.Duration // zero to wait until the context ends
	fair        bool
	permits     int      // zero if not set
	weight      int      // number of permits to take; zero if not set
	warning     *warning // nil without one
}

func defaults() settings {
	return settings{
		choices: choices{Terms: core.Terms{TTL: defaultTTL, Patience: defaultPatience, Renew: true}, retries: Forever},
		guard:   true,
		clock:   clock.System,
		wall:    time.Now,
		jitter:  func(limit time.Duration) time.Duration { return rand.N(limit) },
	}
}

// An optionCache caches the settings of acquisitions with options of their own. Locks with the same
// options share one copy, which otherwise would be a fifth of the memory of a held lock. Choices
// with the same hash share an entry.
type optionCache struct {
	seed   maphash.Seed
	places [16]atomic.Pointer[settings]
}

// share returns settings with the choices of s: cached ones, or s itself.
func (c *optionCache) share(s *settings) *settings {
	place := &c.places[maphash.Comparable(c.seed, s.choices)%uint64(len(c.places))]
	if same := place.Load(); same != nil && same.choices == s.choices {
		return same
	}
	place.Store(s)
	return s
}

// TTL sets how long a lock stays on the servers after its holder has vanished. Default 10 s; from 10
// ms to a year, in whole milliseconds. Above an hour it needs MaxTTL.
func TTL(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < minTTL || d > maxTTL {
			return refuse("TTL", d, "must be between %v and %v", minTTL, maxTTL)
		}
		s.TTL = d.Truncate(time.Millisecond)
		return nil
	}}
}

// NodeTimeout sets the time for which one attempt waits for a majority of the nodes. Default 500
// ms, or half the TTL if that is less. It must be above zero and below the TTL. No attempt waits
// for a minority that does not answer.
func NodeTimeout(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d <= 0 {
			return refuse("NodeTimeout", d, "must be above zero")
		}
		s.nodeTimeout = d
		return nil
	}}
}

// Retries makes Acquire give up after n further failed tries, after contention or an outage. With
// zero it tries once, like TryAcquire. Default Forever: until its context ends, or for its Patience
// through an outage. A caller with Retries does not wait in line.
func Retries(n int) Option {
	return Option{apply: func(s *settings) error {
		if n < Forever {
			return refuse("Retries", n, "must not be negative, except Forever (%d)", Forever)
		}
		s.retries = n
		return nil
	}}
}

// RetryInterval makes Acquire try every d, from start to start, or as soon as the previous try has
// ended. A caller with an interval does not wait in line. Default zero: short random pauses that
// grow to 200 ms, and end early when the lock may be free.
func RetryInterval(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 {
			return refuse("RetryInterval", d, "must not be negative")
		}
		s.interval = d
		return nil
	}}
}

// Wait limits the time for which Acquire and Do wait for the lock. They then return ErrHeld or
// ErrNoQuorum, and not context.DeadlineExceeded. Unlike the deadline of a context, d does not limit
// the work of Do. Default: they wait until ctx ends. d must be above zero; Retries(0) does not
// wait. Patience may end the wait earlier. Wait has no effect on TryAcquire.
func Wait(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d <= 0 {
			return refuse("Wait", d, "must be above zero: to try once, use TryAcquire or Retries(0)")
		}
		s.wait = d
		return nil
	}}
}

// Patience sets the time for which Acquire waits through an outage. It returns ErrNoQuorum if no
// quorum has answered for d. Default 3 s, because a hiccup of servers or of the network is not an
// outage. With zero, each outage is reported at once. Patience has no effect with Retries, or on
// TryAcquire.
func Patience(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 {
			return refuse("Patience", d, "must not be negative: zero reports an outage at once")
		}
		s.Patience = d
		return nil
	}}
}

// Renew sets whether a lock renews itself while it is held, about every third of its TTL. Default
// true. Without renewal a lock ends one TTL after its acquisition, unless Extend is called. Such a
// lock is never acquired by handover from another caller of the Locker, because less than a TTL
// would be left.
func Renew(on bool) Option {
	return Option{apply: func(s *settings) error { s.Renew = on; return nil }}
}

// Owner labels a lock with its holder, such as "web-3 pid 812", for people. Inspect, redlock status
// and the QuorumError of a refused caller show the label, and the time of the holder's request by
// its own clock. At most 128 bytes of printable UTF-8. Default empty: no label.
//
// The label has no effect on decisions, and two holders may have the same. Any client that can read
// the servers' keys can read it, and it appears in errors and logs. A lock is handed over within a
// process only to a caller with the same label.
func Owner(label string) Option {
	return Option{apply: func(s *settings) error {
		switch {
		case len(label) > maxOwner:
			return refuse("Owner", nil, "the label has %d bytes, at most %d are allowed: shorten it", len(label), maxOwner)
		case !isPrintable(label):
			return refuse("Owner", strconv.Quote(label), "must be printable text in UTF-8, on one line")
		}
		s.Owner = label
		return nil
	}}
}

// MaxHold ends a lock d after its acquisition, even if it is renewed. It limits the damage of a
// stuck holder. Default zero: no limit. At most a year.
func MaxHold(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 || d > maxTTL {
			return refuse("MaxHold", d, "must be between 0 (no limit) and %v", maxTTL)
		}
		s.MaxHold = d
		return nil
	}}
}

// Exclusive gives the lock one holder, which is the default. It cancels an earlier Shared, Permits
// or Weight, or the same default of the Locker.
func Exclusive() Option {
	return Option{apply: func(s *settings) error { s.Shared, s.permits, s.weight = false, 1, 1; return nil }}
}

// Shared makes the caller a reader. Any number of readers hold a name together, but not together
// with a writer. A writer is a caller without Shared, or another library's plain SET NX PX.
// Default: a writer.
//
// A writer that waits in Acquire has priority over later readers, except readers of its own Locker
// that wait together with an earlier reader. It waits for the earlier readers; a dead one delays it
// by at most its TTL. A writer that dies during its wait delays readers by a second and two node
// timeouts.
//
// Readers of one Locker share one entry on the nodes, with the value and label (Owner) of the first
// reader. The last reader releases it. A reader notices a loss at its next renewal, not within
// milliseconds as a writer does.
//
// Shared with Fenced or Permits is an error, and Fair has no effect on readers. Lock.Downgrade
// turns a writer into a reader. To become a writer, a reader must release the lock, acquire it as a
// writer, and read again: two readers that wait to become writers would wait for each other.
func Shared() Option {
	return Option{apply: func(s *settings) error { s.Shared = true; return nil }}
}

// Permits makes the name a semaphore: up to k callers hold it, each with its own permit
// (Lock.Permit). k is from 1, which is Exclusive and the default, to 1,000. All clients of a name
// must pass the same k: a permit is refused while the name has a lock without permits, readers, or
// permits of another k.
//
// Each permit is an exclusive lock on a slot, a key of its own. Slot 0 has the key of the plain
// name. A client without Permits, or of another library, sees only that slot, so its locks cost no
// more than without permits. It can get the lock in spite of permits of other slots.
//
// ErrHeld means that all k permits are held, that another kind of lock blocks them, or that other
// callers were faster. The text of the error says that all k are held only if the nodes have
// reported that. Fenced tokens rise within a slot and are not comparable between slots, so send
// both Lock.Permit and Lock.Fence to the resource. Fair or Shared with Permits above one is an
// error.
//
// While few permits are held, a permit costs one attempt, and a question in the same packet.
// Otherwise callers wait at a gate, which is a lock, and the first of them asks the nodes for free
// slots. Nodes then track a key for each slot.
func Permits(k int) Option {
	return Option{apply: func(s *settings) error {
		if k < 1 || k > maxPermits {
			return refuse("Permits", k, "must be between 1 (the exclusive lock) and %d", maxPermits)
		}
		s.Shared, s.permits = s.Shared && k > 1, k
		return nil
	}}
}

// Weight makes the lock w of the k permits of its name, all or none (Lock.Permits). w is from 1,
// the default, to k, and at most 128. The permits are one Lock: they are extended and released
// together, and the loss of one ends all.
//
// Acquire keeps acquired permits while it waits for the rest. A large weight is therefore served in
// spite of small ones, and some permits are held before they are used. Callers with a weight above
// 1 take turns, across all processes, so they cannot deadlock, unless one of them already holds
// permits of the name. TryAcquire waits a few round trips for its turn, but not for a permit.
//
// It costs about w + 3 round trips if all permits are free. With Retries or RetryInterval it keeps
// nothing between tries, and may starve. Fenced with a weight above 1 is an error, because a token
// belongs to one permit.
func Weight(w int) Option {
	return Option{apply: func(s *settings) error {
		if w < 1 || w > maxNames {
			return refuse("Weight", w, "must be between 1 and %d", maxNames)
		}
		s.weight = w
		return nil
	}}
}

// maxNames limits the number of locks in one call.
const maxNames = 128

// maxPermits limits the permits of a name, because a node checks all slots in one step, and other
// requests wait for that.
const maxPermits = 1000

// Fenced gives the lock a fencing token, Lock.Fence. Default: no token. It takes a second round
// trip if this machine's wall clock is more than two seconds from a node's clock, or behind the
// clock of the last holder. Locks with and without tokens exclude each other.
func Fenced() Option {
	return Option{apply: func(s *settings) error { s.Fenced = true; return nil }}
}

// Fair serves the waiters of all clients with Fair in the order in which they started to wait.
// Default: a waiter joins the queue only after it was refused, so a newcomer can overtake it once.
//
// One node at a time keeps the queue of a name, the same one for all clients. When another node
// takes over, and if a waiter is silent for a second, later waiters can overtake. Callers without
// Fair, and TryAcquire, can overtake, too. Exclusion does not depend on the queue.
//
// It costs a round trip to one node before each acquisition. A lock is handed over within a process
// only if no waiter of another process came earlier. Short locks with waiters of many processes are
// therefore slower. Fair has no effect on readers (Shared), and is an error with Permits.
func Fair() Option {
	return Option{apply: func(s *settings) error { s.fair = true; return nil }}
}

// MemoryGuard sets whether a node that may have forgotten locks is denied its vote until they have
// expired. A node may have forgotten locks if its server is new, or was restarted, flushed or
// failed over. Therefore a fresh set of servers grants nothing for one TTL, once: Acquire waits,
// and TryAcquire returns ErrNoQuorum with an ErrQuarantine from each such node.
//
// The nodes record their number and the TTLs in use. To start over, for example after a lock with a
// TTL of a day, run redlock reset. For the case that a majority forgets at once, see MaxTTL.
//
// Default true. Turn it off only if no server can forget (appendfsync always, no eviction), or if
// nothing depends on the lock. New refuses that for nodes that fail over. All clients of a set of
// servers should have the same setting.
func MemoryGuard(on bool) LockerOption {
	return lockerOnly(func(s *settings) error { s.guard = on; return nil })
}

// MaxTTL sets the longest TTL of any client of the nodes. Pass the same value to all clients if
// their TTLs differ. The memory guard waits at least that long if the other nodes cannot prove the
// TTLs of the forgotten locks. A longer TTL is then an error. Default: this Locker's TTL.
//
// Without MaxTTL a TTL above an hour is an error, because one such lock can block all clients of
// the nodes and the Prefix for that time: while nodes that may have forgotten it are a majority,
// they grant nothing.
func MaxTTL(d time.Duration) LockerOption {
	return lockerOnly(func(s *settings) error {
		if d < minTTL || d > maxTTL {
			return refuse("MaxTTL", d, "must be between %v and %v", minTTL, maxTTL)
		}
		s.maxTTL = d
		return nil
	})
}

// Prefix puts p before every name to form the key on the servers. Default empty; with the name at
// most 1,024 bytes.
//
// All clients of a key must use the same prefix. Locks with the same key exclude each other
// whatever their prefix, but the memory guard has one record per prefix, and does not know the
// clients of another prefix.
func Prefix(p string) LockerOption {
	return lockerOnly(func(s *settings) error {
		if len(p) >= maxName {
			return refuse("Prefix", nil, "%d bytes leave no room for names: keys have at most %d", len(p), maxName)
		}
		if keys.Reserved(p) {
			return refuse("Prefix", strconv.Quote(p), "looks like a key of redlock's own: choose another prefix")
		}
		s.prefix = p
		return nil
	})
}

// Observe sends the events of the Locker to o. If o is a Tracer, it also creates a context for each
// acquisition. Default: none. The option may be passed several times.
func Observe(o Observer) LockerOption {
	return lockerOnly(func(s *settings) error {
		if o == nil {
			return refuse("Observe", "nil", "omit the option without an observer")
		}
		s.observers = append(s.observers, o)
		if t, ok := o.(Tracer); ok {
			s.tracers = append(s.tracers, t)
		}
		return nil
	})
}

// Drift returns the difference between the TTL and the validity of a lock: one per cent of the TTL
// and 2 ms, because the clocks of client and servers run at different rates.
func Drift(ttl time.Duration) time.Duration { return quorum.Drift(ttl) }

// An OptionError is the reason an option is refused, alone or in combination with others.
type OptionError struct {
	Option string // name, such as TTL
	Value  string // as passed; empty if the value has no short text
	Reason string // with a suggestion
}

// Error implements error.
func (e *OptionError) Error() string {
	if e.Value == "" {
		return "redlock: option " + e.Option + ": " + e.Reason
	}
	return "redlock: option " + e.Option + "(" + e.Value + "): " + e.Reason
}

// refuse returns an OptionError. A nil value means no value.
func refuse(option string, value any, reason string, args ...any) error {
	e := &OptionError{Option: option, Reason: fmt.Sprintf(reason, args...)}
	if value != nil {
		e.Value = fmt.Sprint(value)
	}
	return e
}

// with returns s changed by the options of one lock, or s itself if there are none.
func (s *settings) with(opts []Option) (*settings, error) {
	if len(opts) == 0 {
		return s, nil
	}
	c := *s
	for _, o := range opts {
		if err := o.applyToLocker(&c); err != nil {
			return nil, err
		}
	}
	c.prepare()
	if err := c.check(); err != nil {
		return nil, err
	}
	return s.optionCache.share(&c), nil
}

// lockerSettings returns the defaults changed by the options of a Locker.
func lockerSettings(opts []LockerOption) (*settings, error) {
	s := defaults()
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("redlock: option is nil: omit it")
		}
		if from, ok := o.(interface{ Sources() protocol.Sources }); ok {
			s.replace(from.Sources())
			continue
		}
		if err := o.applyToLocker(&s); err != nil {
			return nil, err
		}
	}
	s.prepare()
	return &s, s.check()
}

// prepare derives further settings from the choices. One attempt waits for a majority for 500 ms.
// The Redis documentation uses 5 to 50 ms, because it asks one node after another. Here all nodes
// are asked at once, so only a silent majority costs time, and a pause of some hundred milliseconds
// should not fail an attempt.
func (s *settings) prepare() {
	s.Timeout = cmp.Or(s.nodeTimeout, min(500*time.Millisecond, s.TTL/2))
	s.Fair = s.fair && !s.Shared // readers hold together, and are not served in order
}

// replace sets the sources of time and chance of a test.
func (s *settings) replace(of protocol.Sources) {
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

// check returns an error for invalid combinations of settings.
func (s *settings) check() error {
	if s.nodeTimeout >= s.TTL {
		return refuse("NodeTimeout", s.nodeTimeout, "must be below the TTL, %v", s.TTL)
	}
	if s.maxTTL > 0 && s.TTL > s.maxTTL {
		return refuse("TTL", s.TTL, "is above the MaxTTL, %v", s.maxTTL)
	}
	if s.maxTTL == 0 && s.TTL > longTTL {
		return refuse("TTL", s.TTL, "is above an hour: after a restart of most servers no client would get any lock for %v: "+
			"if that is acceptable, set MaxTTL for all clients; or use a shorter TTL: locks are renewed", s.TTL)
	}
	if s.Shared && s.Fenced {
		return refuse("Shared", nil, "readers have no fencing token: omit Fenced, use a Locker without it for readers, or cancel Shared with Exclusive")
	}
	if s.Shared && s.permits > 1 {
		return refuse("Shared", nil, "any number of readers hold a lock together: omit Permits(%d), or cancel it with Exclusive before Shared", s.permits)
	}
	switch {
	case s.weight <= 1:
	case s.weight > s.permits:
		return refuse("Weight", s.weight, "there are %d permits: pass Permits(k) with k of %d or more, or a smaller weight", max(1, s.permits), s.weight)
	case s.Fenced:
		return refuse("Weight", s.weight, "a fencing token belongs to one permit, and this lock has several: omit Fenced")
	}
	if s.fair && s.permits > 1 { // Shared has been checked above
		return refuse("Permits", s.permits, "cannot be combined with Fair, which orders the waiters of one key: "+
			"omit Fair; callers of one Locker are served in order without it")
	}
	return s.checkWarning(s.warning)
}

// holders returns the number of callers that can hold the lock at the same time; zero means any
// number.
func (s *settings) holders() int {
	if s.Shared {
		return 0
	}
	return max(1, s.permits)
}

// Reserved reports whether key is one of the library's own keys, for any Locker with any prefix.
// Acquire refuses such names. They begin with a text such as redlock:fence: or redlock:primary, or
// end with redlock:epoch or redlock:doctor:none.
func Reserved(key string) bool { return keys.Reserved(key) }
