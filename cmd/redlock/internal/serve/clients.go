package serve

import (
	"cmp"
	"slices"
	"time"
)

// Clients are those of this process, by the names of locks.
type clients map[string]*clientsOf

type clientsOf struct {
	waiting []Member
	permits int // how many may hold the lock at once, by what those who wait want
	holding int
}

// mostClients is how many who wait for a lock are named.
const mostClients = 20

// clients returns who has waited for locks since a moment, and how many hold those. One whose request has
// only just come is about to get its lock, unless it waits the next time, too.
func (t *table) clients(since time.Time) clients {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, now := clients{}, time.Now()
	for _, s := range t.sessions {
		for w, began := range s.waits {
			if !began.Before(since) {
				continue
			}
			waited := now.Sub(began).Milliseconds()
			for _, name := range w.names() {
				c := cmp.Or(all[name], &clientsOf{})
				c.waiting = append(c.waiting, Member{Owner: w.Owner, Waited: waited, Left: max(0, w.Wait-waited)})
				c.permits = max(c.permits, w.Permits, 1)
				all[name] = c
			}
		}
	}
	for _, l := range t.leases {
		for _, name := range l.granted.Names {
			if c := all[name]; c != nil && l.lost == "" {
				c.holding++
			}
		}
	}
	return all
}

// addClients adds who waits in this process: to a lock's first permit, as the queue of the servers.
func (s *Survey) addClients(all clients) {
	first := map[string]*LockState{}
	for i := range s.Locks {
		l := &s.Locks[i]
		l.Waiting = l.Waiters.Count
		if all[l.Name] == nil {
			continue
		}
		if known := first[l.Name]; known == nil || l.Permit != nil && known.Permit != nil && *l.Permit < *known.Permit {
			first[l.Name] = l
		}
	}
	for name, l := range first {
		all[name].addTo(l)
	}
}

// addTo adds who waits. Of the clients of a process as many stand in the queue of the servers as may hold
// the lock and do not: the first of its line. They are counted once.
func (c *clientsOf) addTo(l *LockState) {
	slices.SortFunc(c.waiting, func(a, b Member) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Owner, b.Owner))
	})
	count := len(c.waiting)
	l.Clients = Members{Count: count, First: c.waiting[:min(count, mostClients)]}
	inQueue := min(count, max(0, c.permits-c.holding))
	l.Waiting = count + max(0, l.Waiters.Count-inQueue)
}
