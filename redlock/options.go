package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/sources"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

const (
	defaultTTL = 10 * time.Second
	minTTL     = 10 * time.Millisecond
	maxTTL     = 365 * 24 * time.Hour // far from where a server's arithmetic overflows
	longTTL    = time.Hour            // a longer TTL needs MaxTTL
	maxName    = 1024                 // bytes, with the prefix

	defaultPatience = 3 * time.Second

	// Forever is the number of Retries of an Acquire without a limit.
	Forever = -1
)

// An Option changes a default. Given to New it holds for every lock of the Locker; given to
// Acquire, TryAcquire or Do, for that lock only.
type Option struct{ apply func(*settings) error }

// A LockerOption changes a default of a whole Locker: an Option, or the result of MemoryGuard,
// MaxTTL, Prefix, Observe or Log.
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

// settings are what a lock is acquired with. Locks share them, so they never change after that.
type settings struct {
	choices
	prefix    string
	guard     bool
	maxTTL    time.Duration // zero: not set
	clock     clock.Clock
	wall      func() time.Time
	observers []Observer
	tracers   []Tracer // those observers that are
	jitter    func(limit time.Duration) time.Duration
	variants  *variants // made by the Locker
}

// choices are the settings that each acquisition can change.
type choices struct {
	core.Terms                // Timeout and Fair are set by prepare
	nodeTimeout time.Duration // zero: from the TTL
	retries     int
	interval    time.Duration // zero: jittered
	fair        bool
	permits     int      // zero: not set
	weight      int      // of the permits; zero: not set
	warning     *warning // nil: none
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

// variants are the settings that acquisitions have made of a Locker's. Locks with the same options
// share one, because it would be a fifth of the memory of a held lock. Choices with the same hash
// share a place.
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

// TTL sets how long a lock lives on the servers after its holder vanished. Default 10 s; from 10 ms
// to a year, in whole milliseconds. Above an hour it needs MaxTTL.
func TTL(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < minTTL || d > maxTTL {
			return fmt.Errorf("TTL(%v): must be between %v and %v", d, minTTL, maxTTL)
		}
		s.TTL = d.Truncate(time.Millisecond)
		return nil
	}}
}

// NodeTimeout sets how long one vote waits for a majority of the nodes. Default 500 ms, or half the
// TTL if that is less. It must be above zero and below the TTL. A minority that does not answer is
// not waited for.
func NodeTimeout(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("NodeTimeout(%v): must be above zero", d)
		}
		s.nodeTimeout = d
		return nil
	}}
}

// Retries makes Acquire give up after n more tries that failed, for contention or an outage. With
// zero it tries once, as TryAcquire. Default Forever: until its context ends, or for its Patience
// through an outage. A caller with Retries does not wait in line.
func Retries(n int) Option {
	return Option{apply: func(s *settings) error {
		if n < Forever {
			return fmt.Errorf("Retries(%d): must not be negative, but for Forever (%d)", n, Forever)
		}
		s.retries = n
		return nil
	}}
}

// RetryInterval makes Acquire try every d, from start to start, or as soon as the try before has
// ended. A caller with an interval does not wait in line. Default zero: short random pauses that
// grow to 200 ms, and end early when the lock may be free.
func RetryInterval(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("RetryInterval(%v): must not be negative", d)
		}
		s.interval = d
		return nil
	}}
}

// Patience sets how long Acquire waits through an outage. It returns ErrNoQuorum when no quorum has
// answered for d. Default 3 s, because a hiccup of servers or of the network is no outage. Zero
// reports each at once. It has no effect with Retries, or on TryAcquire.
func Patience(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("Patience(%v): must not be negative; zero reports an outage at once", d)
		}
		s.Patience = d
		return nil
	}}
}

// Renew sets whether a lock renews itself for as long as it is held, about every third of its TTL.
// Default true. Without renewal a lock ends one TTL after it was acquired, unless Extend is called,
// and is never handed over by another caller of the Locker, because less than a TTL would be left.
func Renew(on bool) Option {
	return Option{apply: func(s *settings) error { s.Renew = on; return nil }}
}

// Owner labels a lock with its holder, such as "web-3 pid 812", for people. Inspect, redlock status
// and the QuorumError of a refused caller show the label and when the holder asked for the lock, by
// its own clock. At most 128 bytes of printable UTF-8. Default empty: none.
//
// The label decides nothing, and two holders may have the same. All who can read the servers' keys
// can read it, and it is in errors and logs. A lock is handed over within a process only to a
// caller with the same label.
func Owner(label string) Option {
	return Option{apply: func(s *settings) error {
		switch {
		case len(label) > maxOwner:
			return fmt.Errorf("Owner: the label has %d bytes, at most %d are allowed; shorten it", len(label), maxOwner)
		case !isPrintable(label):
			return fmt.Errorf("Owner(%q): must be printable text in UTF-8, on one line", label)
		}
		s.Owner = label
		return nil
	}}
}

// MaxHold ends a lock d after it was acquired, even if it is renewed: it limits what a stuck holder
// costs. Default zero: no limit. At most a year.
func MaxHold(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 || d > maxTTL {
			return fmt.Errorf("MaxHold(%v): must be between 0 (no limit) and %v", d, maxTTL)
		}
		s.MaxHold = d
		return nil
	}}
}

// Exclusive gives the lock one holder. That is the default; Exclusive takes back a Shared, Permits
// or Weight that was given before, or is the Locker's default.
func Exclusive() Option {
	return Option{apply: func(s *settings) error { s.Shared, s.permits, s.weight = false, 1, 1; return nil }}
}

// Shared makes the lock that of a reader. Any number of readers hold a name together, and no writer
// beside them. A writer is a caller without Shared, or another library's plain SET NX PX. Default:
// a writer.
//
// A writer that waits in Acquire goes before readers that come later. It waits for the readers that
// came earlier; one that died holds it up for its TTL at most. A writer that dies while it waits
// holds readers up for a second and two node timeouts.
//
// Readers of one Locker share one entry on the nodes, with the value and label (Owner) of the
// first. The last to leave releases it. A reader learns of a loss at its next renewal, not within
// milliseconds as a writer does.
//
// Shared with Fenced or Permits is an error, and Fair has no effect on readers. A writer becomes a
// reader by Lock.Downgrade. A reader must release the lock, acquire it as a writer, and read again:
// two readers that wait to become writers would wait for each other.
func Shared() Option {
	return Option{apply: func(s *settings) error { s.Shared = true; return nil }}
}

// Permits makes the name a semaphore: up to k callers hold it, each with its own permit
// (Lock.Permit). k is from 1, which is Exclusive and the default, to 1,000. All clients of a name
// give the same k: a permit is refused while a lock of the name without permits, readers, or permits
// of another k are there.
//
// Each permit is an exclusive lock on a slot, a key of its own. Slot 0 has the key of the plain
// name. A client without Permits, or of another library, sees that slot alone, so it costs no more
// than where there are no permits. It can get the lock beside permits of other slots.
//
// ErrHeld says that all k permits are held, or by which other kind of lock. Fenced tokens rise within a slot and are not comparable
// between slots, so give the resource Lock.Permit and Lock.Fence. Fair or Shared with Permits above
// one is an error.
//
// A permit costs one vote, and a question in the same packet, while few are held. Otherwise callers wait at a gate, which is a lock,
// and the first of them asks the nodes which slots are free. Nodes then track a key for each slot.
func Permits(k int) Option {
	return Option{apply: func(s *settings) error {
		if k < 1 || k > maxPermits {
			return fmt.Errorf("Permits(%d): must be between 1 (the exclusive lock) and %d", k, maxPermits)
		}
		s.Shared, s.permits = s.Shared && k > 1, k
		return nil
	}}
}

// Weight makes the lock w of the k permits of its name, all or none (Lock.Permits). w is from 1,
// the default, to k, and at most 128. The permits are one Lock: they are extended and released
// together, and the loss of one ends all.
//
// Acquire keeps the permits that it has got while it waits for the rest. So a large weight gets its
// turn beside small ones, and some permits are held before they are used. Callers with a weight
// above 1 take turns, in all processes, so they cannot deadlock, unless one of them already holds
// permits of the name. TryAcquire waits some round trips for its turn, and for no permit.
//
// It costs about w + 3 round trips if all permits are free. With Retries or RetryInterval it keeps
// nothing between tries, and may starve. Fenced with a weight above 1 is an error, because a token
// is of one permit.
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

// maxPermits bounds the permits of a name, because a node looks at all slots in one step, and
// others wait for that.
const maxPermits = 1000

// Fenced gives the lock a fencing token, Lock.Fence. Default: none. It takes a second round trip if
// this machine's wall clock is more than two seconds from a node's, or behind that of the last
// holder. Locks with and without tokens exclude each other.
func Fenced() Option {
	return Option{apply: func(s *settings) error { s.Fenced = true; return nil }}
}

// Fair serves the waiters of all clients that ask for it in the order in which they began to wait.
// Default: a waiter takes its place only after it was refused, so a newcomer can overtake it once.
//
// One node at a time keeps the queue of a name, the same one for all clients. While another takes
// over, and if a waiter is silent for a second, others can come first. So can callers without Fair,
// and TryAcquire. Exclusion does not depend on the queue.
//
// It costs a round trip to one node before each acquisition, and a lock is handed over within a
// process only as far as no waiter of another came earlier. So short locks with waiters of many
// processes are slower. It has no effect on readers (Shared), and is an error with Permits.
func Fair() Option {
	return Option{apply: func(s *settings) error { s.fair = true; return nil }}
}

// MemoryGuard sets whether a node that may have forgotten locks has no vote until they have
// expired. A node may have forgotten if its server is new, or was restarted, flushed or failed
// over. So a fresh set of servers grants nothing for one TTL, once: Acquire waits, and TryAcquire
// returns ErrNoQuorum with an ErrQuarantine from each such node.
//
// The nodes keep on record how many they are and which TTLs are in use. To start anew, for instance
// after a lock with a TTL of a day, run redlock reset. If a majority forgets at once, see MaxTTL.
//
// Default true. Turn it off only if no server can forget (appendfsync always, no eviction), or if
// nothing depends on the lock. New refuses that for nodes that fail over. All clients of a set of
// servers should have the same.
func MemoryGuard(on bool) LockerOption {
	return lockerOnly(func(s *settings) error { s.guard = on; return nil })
}

// MaxTTL sets the longest TTL of any client of the nodes; give the same to all clients if their
// TTLs differ. The memory guard waits at least so long where the other nodes cannot prove how long
// the forgotten locks were. A longer TTL is then an error. Default: this Locker's TTL.
//
// Without MaxTTL a TTL above an hour is an error, because one such lock can cost all clients of the
// nodes and the Prefix that long: while nodes that may have forgotten it are a majority, they grant
// nothing.
func MaxTTL(d time.Duration) LockerOption {
	return lockerOnly(func(s *settings) error {
		if d < minTTL || d > maxTTL {
			return fmt.Errorf("MaxTTL(%v): must be between %v and %v", d, minTTL, maxTTL)
		}
		s.maxTTL = d
		return nil
	})
}

// Prefix puts p before every name to make the key on the servers. Default empty; with the name at
// most 1,024 bytes.
//
// Give all clients of a key the same prefix. Locks with the same key exclude each other whatever
// their prefix, but the memory guard has a record for each prefix, and does not know the clients of
// another.
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

// Observe tells o what the Locker does. If o is a Tracer, it also makes a context for each
// acquisition. Default: none. It may be given several times.
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

// Drift returns how much earlier than its keys a lock ends: one per cent of the TTL and 2 ms,
// because the clocks of client and servers run at different rates.
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
	c.prepare()
	if err := c.check(); err != nil {
		return nil, err
	}
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
	s.prepare()
	return &s, s.check()
}

// prepare sets what follows from the choices. One vote waits for a majority for 500 ms. The Redis documentation has 5 to
// 50 ms, because it asks one node after the other. Here all are asked at once, so only a majority that is silent costs
// time, and a pause of some hundred milliseconds should not fail a vote.
func (s *settings) prepare() {
	s.Timeout = cmp.Or(s.nodeTimeout, min(500*time.Millisecond, s.TTL/2))
	s.Fair = s.fair && !s.Shared // readers hold together, and are not served in order
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
	if s.nodeTimeout >= s.TTL {
		return fmt.Errorf("redlock: option NodeTimeout(%v): must be below the TTL, %v", s.nodeTimeout, s.TTL)
	}
	if s.maxTTL > 0 && s.TTL > s.maxTTL {
		return fmt.Errorf("redlock: option TTL(%v): is above the MaxTTL, %v", s.TTL, s.maxTTL)
	}
	if s.maxTTL == 0 && s.TTL > longTTL {
		return fmt.Errorf("redlock: option TTL(%v): is above an hour: after a restart of most servers no client would get any lock for %v; "+
			"if that is acceptable, set MaxTTL for all clients; or use a shorter TTL: locks are renewed", s.TTL, s.TTL)
	}
	if s.Shared && s.Fenced {
		return errors.New("redlock: option Shared(): readers have no fencing token; leave out Fenced, or use a Locker without it for readers; Exclusive takes Shared back")
	}
	if s.Shared && s.permits > 1 {
		return fmt.Errorf("redlock: option Shared(): any number of readers hold a lock together; leave out Permits(%d), or take it back with Exclusive before Shared", s.permits)
	}
	switch {
	case s.weight <= 1:
	case s.weight > s.permits:
		return fmt.Errorf("redlock: option Weight(%d): there are %d permits: give Permits(k) with k of %d or more, or less weight", s.weight, max(1, s.permits), s.weight)
	case s.Fenced:
		return fmt.Errorf("redlock: option Weight(%d): fencing tokens are of one permit each, and this is a lock of several; leave out Fenced", s.weight)
	}
	if s.fair && s.permits > 1 { // and not Shared, as said above
		return fmt.Errorf("redlock: option Permits(%d): does not go together with Fair, which orders the waiters of one key; "+
			"leave Fair out: callers of one Locker are served in order without it", s.permits)
	}
	return s.checkWarning(s.warning)
}

// holders is how many callers can hold the lock at the same time; zero: any number.
func (s *settings) holders() int {
	if s.Shared {
		return 0
	}
	return max(1, s.permits)
}

// Reserved reports whether key is one of the library's own, of any Locker with any prefix. Acquire
// refuses such names: those that begin with redlock:fence: and the like, redlock:primary, and those
// that end with redlock:epoch or redlock:doctor:none.
func Reserved(key string) bool { return keys.Reserved(key) }
