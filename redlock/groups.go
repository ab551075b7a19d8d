package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/group"
	"github.com/redquorum/redquorum/redlock/internal/owners"
	"github.com/redquorum/redquorum/redlock/internal/sets"
)

// A Group is one of several independent sets of servers that share the names among them: see
// NewGroups.
type Group struct {
	// Name and the lock's name decide which group has the lock. Keep it while the group is used,
	// whatever its servers are.
	Name string

	// Nodes are the group's servers, as for New.
	Nodes []Node

	// Prefix stands before the keys of the group, after the Locker's. Groups with servers in common
	// need different ones. So a group can replace another, in the map's next version, to change
	// single servers or their number. Default empty.
	Prefix string

	// Joining says, during a change of the map, that the version before has no such group.
	Joining bool
	// Leaving says, during a change of the map, that the version before is the last that has the
	// group.
	Leaving bool
}

// A Map says which groups there are. All clients have the same. To change it:
//
//  1. Give clients the next Version, one after the other, with the groups of both versions, of which
//     some are Joining or Leaving. They lock names whose group changes in both groups.
//  2. When all clients have it, Locker.Groups says within a minute that the change is Complete.
//  3. Give clients the same Version without the groups that were Leaving, and without Joining.
//
// Meanwhile a permit of a name that moves needs the same slot in both groups, so it may be refused
// although others are free. A client that skips a step, or is left behind, gets ErrMap wherever a
// client of another step has been.
type Map struct {
	// Version is one above that of the map before. Default 1.
	Version int
	// Groups in any order, one at least.
	Groups []Group
}

// NewGroups returns a Locker over several groups of servers, each like the nodes of New. Rendezvous
// hashing puts a name in one group (in two while the map changes), so a new group takes its share
// of the names from all others. A name depends only on the servers of its group, and so does an
// outage.
//
// AcquireAll waits for names of several groups in the order of the groups' names.
//
// In each group the Locker holds a reader's lock of its own, with the Locker's TTL: its presence,
// which keeps the map from changing without it. No lock outlives the presence, so a lock with a
// longer TTL ends earlier if its group cannot be reached. To begin with, all servers must answer
// once; later each group is on its own.
//
// The first use of a group takes some more round trips. Errors are those of New and of its calls,
// and ErrMap if other clients use a map that contradicts this one.
func NewGroups(m Map, opts ...LockerOption) (*Locker, error) {
	var nodes []protocol.Node
	for _, m := range m.Groups {
		nodes = append(nodes, m.Nodes...)
	}
	return owning(nodes, func() (*Locker, error) { return newGrouped(m, opts) })
}

// newGrouped is NewGroups with nodes that are claimed already.
func newGrouped(m Map, opts []LockerOption) (*Locker, error) {
	s, err := lockerSettings(opts)
	if err != nil {
		return nil, err
	}
	s.isGrouped = true
	l := newLocker(s)
	config := group.Config{
		Version: cmp.Or(m.Version, 1), Prefix: s.prefix, TTL: s.TTL, Timeout: s.Timeout, Clock: s.clock, Wall: s.wall, Jitter: s.jitter,
		Engine: func(of group.Group, prefix string) *engine.Engine {
			p := l.newPlace(prefix, of.Nodes)
			p.name = of.Name
			l.places = append(l.places, p)
			return p.engine
		},
	}
	nodes := map[protocol.Node]string{}
	for _, of := range m.Groups {
		if err := s.checkNodes(of.Nodes); err != nil {
			return nil, fmt.Errorf("%w, in group %q", err, of.Name)
		}
		for _, n := range of.Nodes {
			if key := owners.Key(n); key != nil {
				if other, twice := nodes[key]; twice {
					return nil, fmt.Errorf("redlock: groups %q and %q have one node, %s, which each would close for the other: open nodes for each group", other, of.Name, n)
				}
				nodes[key] = of.Name
			}
		}
		if err := Prefix(s.prefix + of.Prefix).applyToLocker(&settings{}); err != nil {
			return nil, fmt.Errorf("redlock: group %q: %w", of.Name, err)
		}
		config.Groups = append(config.Groups, group.Group(of))
	}
	if l.groups, err = group.New(config); err != nil {
		return nil, err
	}
	for i, m := range l.groups.All() {
		l.places[i].member = m
	}
	return l, nil
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
// It is an error for a Locker of New. If too few servers of a group answer, its GroupState says so.
// Groups waits for the node timeout at most, and is safe for concurrent use.
func (l *Locker) Groups(ctx context.Context) (*MapState, error) {
	if l.groups == nil {
		return nil, errors.New("redlock: the Locker has no groups; make it with NewGroups")
	}
	if ctx == nil {
		return nil, nilContext(protocol.OpMark, "map")
	}
	if l.isClosed() {
		return nil, closedError(protocol.OpMark, "map")
	}
	seen := l.groups.State(ctx)
	state := &MapState{Version: seen.Version, Changing: seen.Changing, Complete: seen.Complete}
	for i, s := range seen.Groups {
		p := l.places[i]
		of := GroupState{Name: s.Name, Version: s.Version, Retired: s.Retired}
		f, err := group.FailureOf(s.Err)
		of.Err = p.groupError(group.VersionName, f, err)
		for _, n := range p.nodes {
			of.Nodes = append(of.Nodes, n.String())
		}
		state.Groups = append(state.Groups, of)
	}
	return state, nil
}

// enter makes sure of the Locker's presence in the group. It tries again as the call does for a lock.
func (c *call) enter(p *place) error {
	if p.member == nil {
		return nil
	}
	f, err := p.engine.Repeat(c.ctx, &c.settings.Terms, c.schedule(), func() (*core.Failure, int, error) {
		f, err := group.FailureOf(p.member.Enter(c.ctx))
		return f, 0, err
	})
	return p.groupError(c.name, f, err)
}

// join has the locks of a name in two groups agree on its token, and the Lock end with the presences of its groups.
func (k *Lock) join() error {
	if k.locker.groups == nil {
		return nil
	}
	if names := k.each(); k.settings.Fenced && len(k.parts) > len(names) { // some are in two groups
		for _, name := range names {
			if err := k.agree(name); err != nil {
				k.has.Drop()
				return err
			}
		}
	}
	for _, p := range k.places() {
		if p.member.Join(k.call.ctx, k.bond) != nil {
			k.has.Drop() // the call begins anew, and learns why
		}
	}
	return nil
}

// agree gives all locks of a name one token. If the clocks of a group are too far behind for it, it tries again, because
// they come nearer.
func (k *Lock) agree(name string) error {
	var locks []engine.Lock
	var of []*part
	for i := range k.parts {
		if p := &k.parts[i]; p.name == name {
			of, locks = append(of, p), append(locks, p.lock)
		}
	}
	at, token := of[0].at, int64(0)
	f, err := at.engine.Repeat(k.call.ctx, k.terms(), k.schedule(), func() (f *core.Failure, worth int, err error) {
		if token, f = sets.Agree(k.call.ctx, locks); f != nil && f.Kind == core.NotHeld {
			f = nil // complete notices it
		}
		return f, 0, k.call.ctx.Err()
	})
	if f != nil || err != nil {
		return k.errorIn(at, k.name, f, err)
	}
	for _, p := range of {
		p.lock.Token = token
	}
	return nil
}

// leave takes the Lock out of the presences, which need not end it any more.
func (k *Lock) leave() {
	if k.locker.groups != nil {
		for _, p := range k.places() {
			p.member.Leave(k.bond)
		}
	}
}

// groupError makes the error of a request to package group about a name.
func (p *place) groupError(name string, f *core.Failure, err error) error {
	switch {
	case f == nil && (err == nil || errors.Is(err, ErrMap)):
		return err
	case f == nil:
		return p.quorumError(protocol.OpAcquire, name, err)
	case f.Kind == core.AfterClose:
		return closedError(protocol.OpAcquire, name)
	}
	e := p.errorOf(protocol.OpAcquire, name, f, err)
	for _, kind := range []*error{&e.Err, &e.before} {
		if *kind == ErrHeld {
			*kind = errMapHeld
		}
	}
	return e
}

// GroupOf returns the name of the group that the lock name is in, or will be in after a change of
// the map. It is empty for a Locker of New.
func (l *Locker) GroupOf(name string) string {
	if l.groups == nil {
		return ""
	}
	return l.groups.Of(name)
}

// GroupsOf returns the names of the groups that a key is in: one, or two while a change of the map
// moves it. The key is the Lockers' Prefix and the lock's name.
func (m Map) GroupsOf(key string) (names []string) {
	var groups []group.Group
	for _, g := range m.Groups {
		groups = append(groups, group.Group(g))
	}
	slices.SortFunc(groups, func(a, b group.Group) int { return strings.Compare(a.Name, b.Name) })
	before, after := group.Find(groups, key)
	for i, g := range groups {
		if i == before || i == after {
			names = append(names, g.Name)
		}
	}
	return names
}
