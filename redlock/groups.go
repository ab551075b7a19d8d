package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// A Group is one of several independent sets of servers among which the names are distributed: see
// NewGroups.
type Group struct {
	// Name, together with the lock's name, determines the group of the lock.
	Name string

	// Nodes are the group's servers, as for New. No server belongs to two groups.
	Nodes []Node
}

// NewGroups returns a Locker over one or more groups of servers, each like the nodes of New.
// Rendezvous hashing assigns each name to one group. A name depends only on the servers of its
// group, and an outage of a group affects only its names.
//
// All clients must pass the same groups, in any order, with the same Nodes, as named by
// Node.String. A client with other groups, or a client that uses New, gets ErrMap. The memory guard
// detects this with a hash of the groups in each server's record, so with MemoryGuard(false) it
// goes unnoticed. Before its first lock a Locker asks a majority of each group for that hash; later
// each group is independent.
//
// A server can be replaced under its own name while clients run. To change the groups or their
// servers, stop all clients for the longest TTL and run redlock reset with the new groups.
//
// AcquireAll waits for names of several groups in the order of the groups' names.
//
// The errors are the same as for New: NewGroups sends nothing to the servers.
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

// checkGroups returns the names of the servers, or the reason the groups are invalid.
func (s *settings) checkGroups(of []Group) (keys.Groups, error) {
	if len(of) == 0 {
		return nil, errors.New("redlock: no groups: pass at least one")
	}
	m, groupOf := keys.Groups{}, map[string]string{}
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

// A meeting is a Locker's first question to its groups: do their clients have the same groups? A
// client with other groups would assign names to other groups, whose servers would not refuse it.
type meeting struct {
	isOver atomic.Bool // all groups have agreed
	mu     sync.Mutex
	trial  *meetingTrial // try in progress, or nil
}

// A meetingTrial is one try. All callers that wait for it share its outcome.
type meetingTrial struct {
	done chan struct{}
	at   *place
	f    *core.Failure // failure in the place at; nil if all groups have agreed
}

// meet returns nil when all groups have agreed, or the reason they have not. It retries on the
// schedule of the call.
func (c *call) meet() error {
	l := c.locker
	if l.groups == nil || l.met.isOver.Load() {
		return nil
	}
	at := l.placeOf(c.each()[0])
	f, err := at.engine.Repeat(c.waiting, &c.settings.Terms, c.schedule(), func(ctx context.Context) (*core.Failure, int, error) {
		t := l.tryMeeting()
		select {
		case <-t.done:
		case <-l.closed:
			return &core.Failure{Kind: core.AfterClose}, 0, nil
		case <-c.waiting.Done():
			return nil, 0, c.waiting.Err()
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

// tryMeeting returns the current try, or starts one.
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
		if isNew { // no group belongs to clients with other groups
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

// placeOf returns the place of a name.
func (l *Locker) placeOf(name string) *place {
	if l.groups == nil {
		return l.places[0]
	}
	return l.places[keys.GroupOf(l.groups, l.settings.prefix+name)]
}
