package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/redlock/internal/park"
)

var (
	// ErrMap: other clients use a map that does not go together with this one.
	ErrMap = errors.New("other clients use another map of the groups")
	// ErrNotYet: another client is changing the version of the map at the moment, or not all servers of
	// new groups have answered.
	ErrNotYet = errors.New("clients have not agreed on the map of the groups yet")
	// ErrClosed: the Map was closed.
	ErrClosed = errors.New("the map of the groups is closed")
)

// A Group is what the rules need of one group of servers. Its methods are safe for concurrent use. They
// wait for the servers' timeout at most, and Lock for as long as TryAcquire.
type Group interface {
	// Servers are named in the order of the Locker's map.
	Servers() []string
	// AskForMarks begins to ask all servers for the mark of VersionName. The result waits for the answers:
	// a majority of them at least, or why there are fewer.
	AskForMarks(ctx context.Context) func() ([]int64, error)
	// Establish writes the mark on servers that have none.
	Establish(ctx context.Context, mark int64)
	// Raise raises the mark. Nil says that a majority had a lower one.
	Raise(ctx context.Context, mark int64) error
	// Lock acquires a lock of the name, once: that of a reader, which is renewed and is a presence, or of a
	// writer.
	Lock(ctx context.Context, name string, shared bool) (Lock, error)
	// EndUnder ends the locks that are held under a presence that has ended.
	EndUnder(p *Presence, cause error)
}

// A Lock is what a Group has locked.
type Lock interface {
	// Presence returns the one that the lock of a reader is, which has its deadline from now on.
	Presence() *Presence
	Context() context.Context // ends with the lock, with the cause
	Valid() bool
	Drop() // releases it without waiting
}

// A Config is what a Map is made of.
type Config struct {
	Version int // the newest that the client has
	Clock   clock.Clock
	Wall    func() time.Time
	Jitter  func(time.Duration) time.Duration
	Parkers *park.Lot
	Closed  <-chan struct{} // the Locker is
}

// A Map is what a Locker over several groups knows of the versions of their map.
type Map struct {
	config       Config
	all          []*Member // by name
	base, newest int       // versions that the Locker has: one, or two while the map is being changed
	keeper       keeper
	proof        proof
}

// A Member is a group in the map.
type Member struct {
	in               *Map
	group            Group // nil in a map that is only looked up
	name             string
	hash             uint64
	joining, leaving bool
	presence         presenceOf
}

// NewMember returns the member of that name. joining says that the version before has no such group, and
// leaving that it is the last that has it.
func NewMember(name string, g Group, joining, leaving bool) *Member {
	return &Member{group: g, name: name, hash: hash.Text(hash.Basis, name+"\x00"), joining: joining, leaving: leaving}
}

// Name returns the group's name.
func (of *Member) Name() string { return of.name }

// Group returns what the Member was made of.
func (of *Member) Group() Group { return of.group }

// New returns the Map of some members. It does nothing before Keep.
func New(c Config, members []*Member) (*Map, error) {
	m := &Map{config: c, all: members, newest: c.Version, base: c.Version, proof: proof{asking: make(turnstile, 1)}}
	for _, of := range members {
		of.in = m
		if of.joining || of.leaving {
			m.base = m.newest - 1
		}
	}
	slices.SortFunc(m.all, func(a, b *Member) int { return strings.Compare(a.name, b.name) })
	switch {
	case c.Version < 1 || c.Version > MaxVersion:
		return nil, fmt.Errorf("redlock: version %d of the map: must be between 1 and %d", c.Version, MaxVersion)
	case !slices.ContainsFunc(m.all, (*Member).isInNewest):
		return nil, errors.New("redlock: the map has no group that stays; give at least one that is not Leaving")
	case !slices.ContainsFunc(m.all, (*Member).isInBase):
		return nil, errors.New("redlock: all groups are Joining: then there is no change; leave Joining out")
	case m.base == 0:
		return nil, errors.New("redlock: groups are Joining or Leaving, but the map's version is 1; give the version above that of the map before")
	}
	return m, nil
}

// Lookup returns a Map of members without groups, which tells where keys are.
func Lookup(members []*Member) *Map {
	m := &Map{all: members, base: 1, newest: 1}
	if slices.ContainsFunc(members, func(of *Member) bool { return of.joining || of.leaving }) {
		m.base = 0
	}
	return m
}

// All returns the members, by name.
func (m *Map) All() []*Member { return m.all }

// Version is the newest that the Locker has, and isChanging whether it has the one before as well.
func (m *Map) Version() (newest int, isChanging bool) { return m.newest, m.base < m.newest }

func (of *Member) isInNewest() bool { return !of.leaving }
func (of *Member) isInBase() bool   { return !of.joining }

// choose returns the member that has a key among those that in selects: the one that draws the highest
// number for it.
func (m *Map) choose(key string, in func(*Member) bool) (best *Member) {
	var highest uint64
	for _, of := range m.all {
		if !in(of) {
			continue
		}
		if n := hash.Mix(hash.Text(of.hash, key)); best == nil || n > highest {
			best, highest = of, n
		}
	}
	return best
}

// Newest returns the member that has a key after a change that is under way.
func (m *Map) Newest(key string) *Member { return m.choose(key, (*Member).isInNewest) }

// Places returns the members in which a key is locked, in order: one, or two if its group changes.
func (m *Map) Places(key string) []*Member {
	now := m.Newest(key)
	if m.base == m.newest {
		return []*Member{now}
	}
	before := m.choose(key, (*Member).isInBase)
	switch {
	case before == now:
		return []*Member{now}
	case before.name < now.name:
		return []*Member{before, now}
	default:
		return []*Member{now, before}
	}
}
