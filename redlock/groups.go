package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/groups"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// A Group is one of several independent sets of servers that share the names among them: see
// NewGroups.
type Group struct {
	// Name and the lock's name decide which group has the lock.
	Name string

	// Nodes are the group's servers, as for New. No server is in two groups.
	Nodes []Node
}

// NewGroups returns a Locker over one or more groups of servers, each like the nodes of New.
// Rendezvous hashing puts each name in one group. A name depends only on the servers of its group,
// and so does an outage.
//
// All clients must give the same groups, in any order, with the same Nodes, as Node.String has
// them. A client that gives others, or uses New, gets ErrMap: the memory guard keeps a hash of the
// groups in each server's record, so with MemoryGuard(false) nothing notices. Before its first lock
// a Locker asks a majority of each group for that hash; later each group is on its own.
//
// A server can be replaced under its own name while clients run. To change the groups or their
// servers, stop all clients for the longest TTL and run redlock reset with the new groups.
//
// AcquireAll waits for names of several groups in the order of the groups' names.
//
// Errors are those of New: NewGroups asks no server.
func NewGroups(groups []Group, opts ...LockerOption) (*Locker, error) {
	var nodes []Node
	for _, g := range groups {
		nodes = append(nodes, g.Nodes...)
	}
	return owning(nodes, func() (*Locker, error) {
		s, err := lockerSettings(opts)
		if err != nil {
			return nil, err
		}
		servers, err := s.checkGroups(groups)
		if err != nil {
			return nil, err
		}
		l := newLocker(s)
		for _, g := range slices.SortedFunc(slices.Values(groups), func(a, b Group) int { return strings.Compare(a.Name, b.Name) }) {
			l.groups = append(l.groups, g.Name)
			l.places = append(l.places, l.newPlace(g.Name, servers.Hash(g.Name), g.Nodes))
		}
		return l, nil
	})
}

// checkGroups returns the names of the servers, or why these groups cannot share names.
func (s *settings) checkGroups(of []Group) (groups.Map, error) {
	if len(of) == 0 {
		return nil, errors.New("redlock: no groups; give at least one")
	}
	m, groupOf := groups.Map{}, map[string]string{}
	for i, g := range of {
		switch {
		case g.Name == "":
			return nil, fmt.Errorf("redlock: group %d has no name", i+1)
		case m[g.Name] != nil:
			return nil, fmt.Errorf("redlock: two groups are named %q", g.Name)
		case len(g.Nodes) == 0:
			return nil, fmt.Errorf("redlock: group %q has no nodes", g.Name)
		}
		if err := s.checkNodes(g.Nodes); err != nil {
			return nil, fmt.Errorf("%w, in group %q", err, g.Name)
		}
		for _, n := range g.Nodes {
			server := n.String()
			if other, twice := groupOf[server]; twice {
				return nil, fmt.Errorf("redlock: groups %q and %q have the same server, %s: a server belongs to one group", other, g.Name, server)
			}
			groupOf[server] = g.Name
			m[g.Name] = append(m[g.Name], server)
		}
	}
	return m, nil
}

// A meeting is the first question of a Locker to its groups: whether their clients have the same
// groups. A client with other groups would look for names elsewhere, where nothing refuses it.
type meeting struct {
	isOver atomic.Bool // all groups have agreed
	mu     sync.Mutex
	trial  *meetingTrial // under way, or nil
}

// A meetingTrial is one try. All callers that wait for it share its outcome.
type meetingTrial struct {
	done chan struct{}
	at   *place
	f    *core.Failure // of at; nil: all groups have agreed
}

// meet returns when all groups have agreed, or why they have not. It tries again as the call does for
// a lock.
func (c *call) meet() error {
	l := c.locker
	if l.groups == nil || l.met.isOver.Load() {
		return nil
	}
	at := l.placeOf(c.each()[0])
	f, err := at.engine.Repeat(c.ctx, &c.settings.Terms, c.schedule(), func() (*core.Failure, int, error) {
		t := l.tryMeeting()
		select {
		case <-t.done:
		case <-l.closed:
			return &core.Failure{Kind: core.AfterClose}, 0, nil
		case <-c.ctx.Done():
			return nil, 0, c.ctx.Err()
		}
		if t.f != nil {
			at = t.at
		}
		return t.f, 0, nil
	})
	switch {
	case f != nil:
		return c.errorIn(at, about{name: c.name}, f, err)
	case err != nil:
		return c.noFailure(err)
	}
	return nil
}

// tryMeeting returns the try that is under way, and begins one if there is none.
func (l *Locker) tryMeeting() *meetingTrial {
	l.met.mu.Lock()
	defer l.met.mu.Unlock()
	if l.met.trial != nil {
		return l.met.trial
	}
	t := &meetingTrial{done: make(chan struct{})}
	l.met.trial = t
	go func() {
		failures := make([]*core.Failure, len(l.places))
		var all sync.WaitGroup
		for i, p := range l.places {
			all.Go(func() { failures[i] = p.engine.Meet(context.Background(), l.settings.Timeout) })
		}
		all.Wait()
		isNew := true
		for i, f := range failures {
			if f != nil && (t.f == nil || f.IsPermanent()) {
				t.f, t.at = f, l.places[i]
			}
			isNew = isNew && (f == nil || f.Kind == core.InQuarantine)
		}
		if isNew { // no group belongs to others
			for i, f := range failures {
				if f != nil {
					l.places[i].engine.Introduce()
				}
			}
		}
		l.met.isOver.Store(t.f == nil)
		l.met.mu.Lock()
		l.met.trial = nil
		l.met.mu.Unlock()
		close(t.done)
	}()
	return t
}

// placeOf returns the place that has a name.
func (l *Locker) placeOf(name string) *place {
	if l.groups == nil {
		return l.places[0]
	}
	return l.places[groups.Of(l.groups, l.settings.prefix+name)]
}

// GroupOf returns the name of the group that has the lock name. It is empty for a Locker of New.
func (l *Locker) GroupOf(name string) string { return l.placeOf(name).name }
