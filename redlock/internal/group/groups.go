// Package group spreads names over several groups of servers. It has one engine for each group and knows
// nothing of votes.
//
// # A name
//
// A name is in one group, but while a change of the map moves it to another it is in both. Clients of the
// map before the change lock it in the one, clients of the map after it in the other, and those in between
// in both, in one order: so two clients that have a map in common exclude each other. A caller takes what
// [Groups.Places] returns as a set of package sets.
//
// # Presence
//
// Clients that have no map in common do not exclude each other in any group. They are kept apart by their
// presence: the lock of a reader that a client holds in each group that it uses, on the name of its newest
// map. Nothing is held without a presence in all of its groups. It does not matter which came first, the
// presence or the lock: a client that has a presence is one that no newer map has left behind.
//
//	Enter each Place ──► a set of package sets ──► Join each Place ──► its caller has it
//	       ▲                                            │
//	       └── a lock or a presence has ended ◄─────────┘
//
// A caller enters before it waits for locks, because it waits in vain if other clients have left its map
// behind. It joins with the Bond of its locks when it has them. From then on the Bond ends with the presence,
// in the moment in which that ends, and before the servers are asked to give it back.
//
// # How the map changes
//
// A client that gets the writer's lock of a version of the map knows that no client is left that has it as its
// newest. It marks the version as retired in the group, so that none comes again.
//
//	clients have b  ──►  clients have b and b+1,  ──►  in each group of b:      ──►  in each group of b+1:
//	presence: b          lock moved names in both      writer's lock of b,           completed(b+1): clients
//	                     presence: b+1                 then the mark retired(b)      may have b+1 alone
//
// Of the clients that have b alone and b+1 alone, the ones end, with their presence, before b is retired, and the
// others begin when b+1 is complete. The test explore_test.go tries all orders of events.
//
// # Mutexes
//
// An entry of an engine, then a Bond, then a Place. That of the Groups is taken by itself.
package group

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

var (
	// ErrMap: other clients use a map that does not go together with this one.
	ErrMap = errors.New("other clients use another map of the groups")
	// ErrNotYet: another client is changing the version of the map at the moment, or not all servers of
	// new groups have answered.
	ErrNotYet = errors.New("clients have not agreed on the map of the groups yet")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("the groups are closed")
)

// A Config is what Groups are made of.
type Config struct {
	Version int // of the map: the newest
	Groups  []Group
	Prefix  string        // before the keys of all groups, and of what groups that share servers have in common
	TTL     time.Duration // of a presence
	Timeout time.Duration // of a request to a node
	Clock   clock.Clock
	Wall    func() time.Time
	Jitter  func(limit time.Duration) time.Duration
	// Engine makes the engine of a group. The prefix is that of all its keys, and of the nodes' epoch records.
	Engine func(g Group, prefix string) *engine.Engine
}

// Groups are the groups of one Locker. They are safe for concurrent use.
type Groups struct {
	config   Config
	versions *versions
	places   []*Place      // of versions.groups
	isProven atomic.Bool   // the older of the versions is complete
	proving  chan struct{} // has room for the one who asks the nodes about that

	mu      sync.Mutex // guards the beginning of goroutines against Close
	running sync.WaitGroup
	closed  context.Context // has ended: Close was called
	close   context.CancelFunc
}

// New returns the Groups of a map. Close does not close the nodes.
func New(c Config) (*Groups, error) {
	if err := check(c.Groups); err != nil {
		return nil, err
	}
	v, err := newVersions(c.Version, c.Groups)
	if err != nil {
		return nil, err
	}
	g := &Groups{config: c, versions: v, proving: make(chan struct{}, 1)}
	g.closed, g.close = context.WithCancel(context.Background())
	for _, of := range v.groups {
		p := &Place{groups: g, group: of, prefix: c.Prefix + of.Prefix, guests: map[*engine.Bond]struct{}{}}
		p.engine = c.Engine(of, p.prefix)
		g.places = append(g.places, p)
	}
	g.start(g.keep)
	return g, nil
}

// start runs f in a goroutine that Close waits for. It returns false after Close.
func (g *Groups) start(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Err() != nil {
		return false
	}
	g.running.Go(f)
	return true
}

// Of returns the name of the group that has a name after a change of the map that is under way.
func (g *Groups) Of(name string) string {
	_, after := Find(g.versions.groups, g.config.Prefix+name)
	return g.versions.groups[after].Name
}

// All returns the Places of all groups, by their names.
func (g *Groups) All() []*Place { return g.places }

// Places returns where a name is locked, as indexes of All, in the order in which all clients lock it: by the names of
// the groups.
func (g *Groups) Places(name string) []int {
	before, after := Find(g.versions.groups, g.config.Prefix+name)
	if before == after {
		return []int{after}
	}
	return []int{min(before, after), max(before, after)}
}

// A State is what the servers of all groups tell of the map.
type State struct {
	Version  int  // the newest that the Groups have
	Changing bool // they have the one before as well
	Complete bool // clients may have Version alone
	Groups   []Sight
}

// A Sight is what the servers of one group tell: the version that clients have, zero if no client has been
// there, or the error with which too few told.
type Sight struct {
	Name    string
	Version int
	Retired bool // no client can come any more that has Version as its newest
	Err     error
}

// State asks all servers which versions of the map are in use.
func (g *Groups) State(ctx context.Context) *State {
	v := g.versions
	state := &State{Version: v.newest, Changing: v.base < v.newest}
	for i, s := range g.look(ctx) {
		state.Groups = append(state.Groups, Sight{v.groups[i].Name, s.highest.version(), s.highest.isRetired(), s.err})
		state.Complete = state.Complete || s.majority.proves(v.newest)
	}
	return state
}

// Close ends all locks, all waiting and the presences. It returns when the nodes have answered all that was
// asked, or the context ends.
func (g *Groups) Close(ctx context.Context) (err error) {
	g.mu.Lock()
	g.close()
	g.mu.Unlock()
	closed := make(chan error, len(g.places))
	for _, p := range g.places {
		go func() { closed <- p.engine.Close(ctx) }()
	}
	g.running.Wait()
	for range g.places {
		err = errors.Join(err, <-closed)
	}
	return err
}
