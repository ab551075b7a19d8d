package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/protocol"
)

// A Group is one of several independent sets of servers over which names are spread, so that more
// servers do more work: see NewGroups.
type Group struct {
	// Name decides with each lock's name which group that is in. It stays with the group for as
	// long as that is used, whatever its servers are.
	Name string

	// Nodes are the group's servers, as for New.
	Nodes []protocol.Node

	// Prefix stands before the keys of the group, behind that of the Locker. Groups that have servers
	// in common need different ones: so one can take the place of the other, with the map's next
	// version, while single servers or their number change. Default empty.
	Prefix string

	// Joining says, while the map is being changed, that the version before has no such group.
	Joining bool
	// Leaving says, while the map is being changed, that the version before is the last that has
	// the group.
	Leaving bool
}

// A Map says which groups there are. It is the same for all clients, but while it is being changed:
//
//  1. Clients get the next Version, one after the other, with the groups of both versions, of which
//     some are Joining or Leaving. They lock names whose group changes in both groups.
//  2. When all clients have it, Locker.Groups says within a minute that the change is Complete.
//  3. Clients get the same Version without the groups that were Leaving, and without Joining.
//
// Meanwhile a permit of a name that moves is the same slot in both groups, so one may be refused though
// others are free. Observers are told of each part of a lock that is in several groups.
//
// A client that skips a step gets ErrMap wherever a client of another step has been, and so does one
// that is left behind.
type Map struct {
	// Version is one above that of the map before. Default 1.
	Version int
	// Groups in any order, one at least.
	Groups []Group
}

// maxVersion bounds versions by the room that a mark has for them (see stage).
const maxVersion = 1 << 19

// NewGroups returns a Locker over several groups of servers, each of which is like the nodes of New.
// A name is in one group (but see Map), by rendezvous hashing: so each group has its part of the
// names, and a group that is added takes its part from all others. All that a Locker promises of a
// name rests on the servers of its group, and an outage of a group is one for its names only.
//
// AcquireAll takes names of several groups group by group, in the order of the groups' names, and so
// needs a round trip for each. Its Lock is held while all its parts are.
//
// For each group the Locker holds a lock of its own, of a reader and with the Locker's TTL: its
// presence, which keeps the map from being changed without it. No lock of the Locker outlives that
// one, so a lock with a longer TTL ends earlier where a group cannot be reached. A lock that was extended
// by its value is protected from a change of the map while the Locker that did so is open. To begin with,
// all servers must answer once; later each group is on its own.
//
// The first use of a group takes some round trips more. Errors are those of New and of its calls, and
// ErrMap if other clients of a group use a map that does not go together with this one.
func NewGroups(m Map, opts ...LockerOption) (*Locker, error) {
	var nodes []protocol.Node
	for _, g := range m.Groups {
		nodes = append(nodes, g.Nodes...)
	}
	return owning(nodes, func() (*Locker, error) { return newGrouped(m, opts) })
}

// newGrouped is NewGroups for nodes that are claimed.
func newGrouped(m Map, opts []LockerOption) (*Locker, error) {
	s, err := lockerSettings(opts)
	if err != nil {
		return nil, err
	}
	gs := &groups{newest: max(m.Version, 1), prefix: s.prefix, proof: proof{asking: make(turnstile, 1)}}
	gs.base = gs.newest
	if m.Version < 0 || m.Version > maxVersion {
		return nil, fmt.Errorf("redlock: version %d of the map: must be between 1 and %d", m.Version, maxVersion)
	}
	l := newLockerOf(nil, s)
	l.groups = gs
	l.observe()
	servers := map[string]string{} // the groups that have them with a prefix
	nodes := map[protocol.Node]string{}
	for i, g := range m.Groups {
		switch same := func(other *group) bool { return other.name == g.Name }; {
		case g.Name == "":
			return nil, fmt.Errorf("redlock: group %d has no name; give one that stays with its servers", i)
		case slices.ContainsFunc(gs.all, same):
			return nil, fmt.Errorf("redlock: two groups are named %q", g.Name)
		case len(g.Nodes) == 0:
			return nil, fmt.Errorf("redlock: group %q has no nodes", g.Name)
		case g.Joining && g.Leaving:
			return nil, fmt.Errorf("redlock: group %q cannot be Joining and Leaving", g.Name)
		}
		if err := checkCount(len(g.Nodes)); err != nil {
			return nil, fmt.Errorf("%w, in group %q", err, g.Name)
		}
		if err := s.checkNodes(g.Nodes); err != nil {
			return nil, fmt.Errorf("%w, in group %q", err, g.Name)
		}
		for _, n := range g.Nodes {
			of := g.Prefix + "\x00" + n.String()
			if other, twice := servers[of]; twice {
				return nil, fmt.Errorf("redlock: groups %q and %q have the same server, %s: give one of them a Prefix of its own", other, g.Name, n)
			}
			servers[of] = g.Name
			if key := keyOf(n); key != nil {
				if other, twice := nodes[key]; twice {
					return nil, fmt.Errorf("redlock: groups %q and %q have one node, %s, which each would close for the other: open nodes for each group", other, g.Name, n)
				}
				nodes[key] = g.Name
			}
		}
		own := *s
		if err := Prefix(s.prefix + g.Prefix).applyToLocker(&own); err != nil {
			return nil, fmt.Errorf("redlock: group %q: %w", g.Name, err)
		}
		if s.guard {
			own.epoch = own.prefix + record.Key
		}
		inner := newLockerOf(g.Nodes, &own)
		inner.events = l.events
		inner.group = &group{
			groups: gs, name: g.Name, hash: hashOf(g.Name), locker: inner, plain: s, joining: g.Joining, leaving: g.Leaving,
		}
		gs.all = append(gs.all, inner.group)
		if g.Joining || g.Leaving {
			gs.base = gs.newest - 1
		}
	}
	slices.SortFunc(gs.all, func(a, b *group) int { return strings.Compare(a.name, b.name) })
	switch {
	case !slices.ContainsFunc(gs.all, (*group).isInNewest):
		return nil, errors.New("redlock: the map has no group that stays; give at least one that is not Leaving")
	case !slices.ContainsFunc(gs.all, (*group).isInBase):
		return nil, errors.New("redlock: all groups are Joining: then there is no change; leave Joining out")
	case gs.base == 0:
		return nil, errors.New("redlock: groups are Joining or Leaving, but the map's version is 1; give the version above that of the map before")
	}
	gs.keep(l)
	return l, nil
}

// groups are the sets of servers of a Locker, and what is known of their map's versions.
type groups struct {
	all          []*group // by name
	base, newest int      // versions of the map that the Locker has: one, or two while the map is being changed
	prefix       string
	keeper       keeper
	proof        proof
}

// A group is one set of servers, with the Locker over them.
type group struct {
	groups           *groups
	name             string
	hash             uint64
	locker           *Locker
	plain            *settings // without the group's prefix
	joining, leaving bool
	presence         presenceOf
}

// hashOf is where the hash of a key in the group begins.
func hashOf(group string) uint64 { return hash.Text(hash.Basis, group+"\x00") }

func (g *group) isInNewest() bool { return !g.leaving }
func (g *group) isInBase() bool   { return !g.joining }

// of returns the group of a key among those that in selects: the one that draws the highest number
// for it.
func (gs *groups) of(key string, in func(*group) bool) (best *group) {
	var highest uint64
	for _, g := range gs.all {
		if !in(g) {
			continue
		}
		if n := hash.Mix(hash.Text(g.hash, key)); best == nil || n > highest {
			best, highest = g, n
		}
	}
	return best
}

// places returns the groups in which a key is locked, in order: one, or two if its group changes.
func (gs *groups) places(key string) []*group {
	now := gs.of(key, (*group).isInNewest)
	if gs.base == gs.newest {
		return []*group{now}
	}
	before := gs.of(key, (*group).isInBase)
	switch {
	case before == now:
		return []*group{now}
	case before.name < now.name:
		return []*group{before, now}
	default:
		return []*group{now, before}
	}
}

func (gs *groups) close() error {
	gs.keeper.stop()
	errs := make([]error, len(gs.all))
	done := make(chan struct{})
	for i, g := range gs.all {
		go func() { errs[i] = g.locker.Close(); done <- struct{}{} }()
	}
	for range gs.all {
		<-done
	}
	return errors.Join(errs...)
}

// A request is what a caller asked for.
type request struct {
	names []string // sorted and without doubles
	all   bool     // by AcquireAll or TryAcquireAll
	try   bool     // without waiting
	opts  []Option
}

// acquire is TryAcquire or Acquire.
func (gs *groups) acquire(ctx context.Context, name string, of request) (*Lock, error) {
	places := gs.places(gs.prefix + name)
	if len(places) == 1 {
		return part{places[0], []string{name}}.acquire(ctx, of)
	}
	if ctx == nil {
		return nil, nilContext(protocol.OpAcquire, name)
	}
	of.names = []string{name}
	return acquireParts(ctx, of, []part{{places[0], of.names}, {places[1], of.names}})
}

// acquireAll is TryAcquireAll or AcquireAll.
func (gs *groups) acquireAll(ctx context.Context, of request) (*Lock, error) {
	of.names = slices.Compact(slices.Sorted(slices.Values(of.names)))
	if ctx == nil {
		return nil, nilContext(protocol.OpAcquireAll, textOf(of.names))
	}
	l := gs.all[0].locker // all have the same settings
	s, err := l.settings.with(of.opts)
	if err != nil {
		return nil, err
	}
	if err := s.checkSet(of.names); err != nil {
		return nil, err
	}
	var parts []part
	for _, name := range of.names {
		if _, err := s.key(name); err != nil {
			return nil, err
		}
		for _, g := range gs.places(gs.prefix + name) {
			parts = append(parts, part{g, []string{name}})
		}
	}
	if parts = merged(parts); len(parts) == 1 {
		return parts[0].acquire(ctx, of)
	}
	return acquireParts(ctx, of, parts)
}

// A GroupState is what the servers of one group say of the map.
type GroupState struct {
	Name string
	// Nodes of the group, in the order of the Map.
	Nodes []string
	// Version of the map that clients have, as the group's servers tell. Zero where no client has
	// been.
	Version int
	// Retired says that no client can come any more that has Version as its newest.
	Retired bool
	// Err says why too few servers told, or is nil.
	Err error
}

// A MapState is what Groups returns.
type MapState struct {
	Version  int  // the newest that the Locker has
	Changing bool // the Locker has the version before, too
	// Complete says that clients may have Version alone.
	Complete bool
	Groups   []GroupState // by name
}

// Groups asks the servers of all groups which versions of the map are in use, and changes nothing.
// For a Locker of New it is an error. What too few servers tell is no error, but stands with the
// group. It waits for the node timeout at most, and is safe for concurrent use.
func (l *Locker) Groups(ctx context.Context) (*MapState, error) {
	if l.groups == nil {
		return nil, errors.New("redlock: the Locker has no groups; make it with NewGroups")
	}
	if ctx == nil {
		return nil, nilContext(protocol.OpMark, "map")
	}
	if isDone(l.closed) {
		return nil, closedError(protocol.OpMark, "map")
	}
	gs := l.groups
	state := &MapState{Version: gs.newest, Changing: gs.base < gs.newest}
	for i, seen := range gs.look(ctx) {
		g := gs.all[i]
		at := GroupState{Name: g.name, Err: seen.err}
		for _, n := range g.locker.nodes {
			at.Nodes = append(at.Nodes, n.String())
		}
		at.Version, at.Retired = seen.highest.version(), seen.highest > 0 && seen.highest == retired(seen.highest.version())
		state.Complete = state.Complete || seen.majority.proves(gs.newest)
		state.Groups = append(state.Groups, at)
	}
	return state, nil
}

// GroupOf returns the name of the group that the lock name is in, after a change of the map that is
// under way. It is empty for a Locker of New.
func (l *Locker) GroupOf(name string) string {
	if l.groups == nil {
		return ""
	}
	return l.groups.of(l.settings.prefix+name, (*group).isInNewest).name
}

// GroupsOf returns the names of the groups that a key is in: one, or, if a change that is under way
// moves it to another group, both. The key is a lock's name behind the Lockers' Prefix, and the map
// one that NewGroups takes.
func (m Map) GroupsOf(key string) (names []string) {
	gs := &groups{base: 1, newest: 1}
	for _, g := range m.Groups {
		gs.all = append(gs.all, &group{name: g.Name, hash: hashOf(g.Name), joining: g.Joining, leaving: g.Leaving})
		if g.Joining || g.Leaving {
			gs.base = 0
		}
	}
	for _, g := range gs.places(key) {
		names = append(names, g.name)
	}
	return names
}

// inspectInGroups asks the group that has a name. While its group changes it is the one where a
// quorum holds the name, if there is one.
func inspectInGroups[T any](places []*group, ask func(*Locker) (found T, held bool, err error)) (found T, err error) {
	for _, g := range places {
		var held bool
		if found, held, err = ask(g.locker); held || err != nil {
			return found, err
		}
	}
	return found, nil
}

// releaseValueInGroups releases the value where it is: a lock whose group changes has another one
// in each.
func (l *Locker) releaseValueInGroups(ctx context.Context, h handle) error {
	if ctx == nil {
		return nilContext(h.op, h.name)
	}
	key, err := l.settings.key(h.name)
	if err != nil {
		return err
	}
	var failure error
	for _, g := range l.groups.places(key) {
		err := g.locker.ReleaseValue(ctx, h.name, h.value)
		if err == nil {
			return nil
		}
		if failure == nil || errors.Is(failure, ErrLost) { // it may be where it could not be looked for
			failure = err
		}
	}
	return failure
}

// extendValueInGroups is ExtendValue. It refuses a name whose group changes, because nothing would
// extend what the holder has in the other group.
func (l *Locker) extendValueInGroups(ctx context.Context, h handle, opts []Option) error {
	if ctx == nil {
		return nilContext(h.op, h.name)
	}
	key, err := l.settings.key(h.name)
	if err != nil {
		return err
	}
	places := l.groups.places(key)
	if len(places) > 1 {
		return fmt.Errorf("redlock: extend %q: the map of the groups is being changed, and until all clients have the new one "+
			"only the lock's holder can extend it", h.name)
	}
	g := places[0]
	if err := g.enter(ctx, h.name); err != nil {
		return err
	}
	p := g.presence.now.Load()
	if err := g.locker.ExtendValue(ctx, h.name, h.value, opts...); err != nil {
		return err
	}
	if g.locker.settings.clock.Now() >= p.end() { // clients of another version may have the name
		return fmt.Errorf("redlock: extend %q: %w", h.name, errAbsent)
	}
	return nil
}
