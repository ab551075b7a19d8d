package serve

import (
	"cmp"
	"slices"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
)

// clients are the waiting clients of this process, by the names of locks.
type clients map[string]*clientsOf

type clientsOf struct {
	waiting []survey.Member
	permits int // number of permits in the waiters' requests
	holding int
}

// mostClients limits the named waiters of a lock.
const mostClients = 20

// clients returns the clients that have waited for locks since a given time, and the number of
// holders. It omits a client whose request has just arrived, because the client usually gets its
// lock at once.
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
			for _, name := range w.AllNames() {
				c := cmp.Or(all[name], &clientsOf{})
				c.waiting = append(c.waiting, survey.Member{Owner: w.Owner, Waited: waited, Left: max(0, w.Wait-waited)})
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

// addTo adds the waiters of this process to a lock's first permit, like the queue of the servers.
func (all clients) addTo(s *survey.Survey) {
	first := map[string]*survey.LockState{}
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

// addTo adds the waiters. The first clients of the line of a process are also in the queue of the
// servers, one for each permit that the process does not hold. Such a client is counted once.
func (c *clientsOf) addTo(l *survey.LockState) {
	slices.SortFunc(c.waiting, func(a, b survey.Member) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Owner, b.Owner))
	})
	count := len(c.waiting)
	l.Clients = survey.Members{Count: count, First: c.waiting[:min(count, mostClients)]}
	inQueue := min(count, max(0, c.permits-c.holding))
	l.Waiting = count + max(0, l.Waiters.Count-inQueue)
}
