package serve

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/redlock"
)

// A Page shows people, and programs, what there is: the locks on the servers, the servers, the sessions,
// and what happens. It has the servers looked at while a viewer waits for news, and once for all viewers.
// It is safe for concurrent use. It is also a redlock.Observer, for the Server's Locker.
type Page struct {
	// Look returns what the servers hold. It is called at most once a second, not twice at a time, and so
	// that it takes at most half of the time.
	Look func(context.Context) (*Survey, error)

	ctx   context.Context // ends with the server
	table *table          // of its clients

	mu      sync.Mutex
	now     *snapshot     // the last; nil before the first
	changed chan struct{} // closed when there is another
	looking bool          // one is being made
	next    time.Time     // not before this
	made    sync.WaitGroup

	events history
}

// A snapshot is a survey that was made. It is not changed.
type snapshot struct {
	Survey
	version int64
	at      time.Time
	took    time.Duration
	failed  string // why there is no survey
}

const (
	leastPause = time.Second // between two surveys, from start to start
	lookWithin = time.Minute // for a survey: a server that has very many keys takes a while
)

// start makes the page of a server ready, until ctx ends.
func (p *Page) start(ctx context.Context, of *table) {
	p.ctx, p.table, p.changed = ctx, of, make(chan struct{})
}

// wait returns when nothing is looked at any more. Its context has ended.
func (p *Page) wait() {
	p.mu.Lock()
	p.looking = true // so that nothing begins
	p.mu.Unlock()
	p.made.Wait()
}

// latest returns a snapshot that the viewer has not seen and that is not old, which it waits for.
func (p *Page) latest(ctx context.Context, seen int64) (*snapshot, error) {
	for {
		p.mu.Lock()
		now, changed := p.now, p.changed
		if now != nil && now.version != seen && time.Now().Before(p.next) {
			p.mu.Unlock()
			return now, nil
		}
		if !p.looking && p.ctx.Err() == nil {
			p.looking = true
			p.made.Go(p.look)
		}
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return now, ctx.Err()
		case <-p.ctx.Done():
			return nil, errEnding
		}
	}
}

// look makes one snapshot, when it is time.
func (p *Page) look() {
	wait := time.NewTimer(time.Until(p.next)) // which only look changes
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-p.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, lookWithin)
	defer cancel()
	began := time.Now()
	found, err := p.Look(ctx)
	made := &snapshot{at: began, took: time.Since(began), version: 1}
	if err != nil {
		made.failed = err.Error()
	} else {
		made.Survey = *found
		made.sort()
		made.addClients(p.table.clients(began))
		for i := range made.Servers {
			made.Servers[i].Health = made.Servers[i].health()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.now; before != nil {
		made.version = before.version + 1
		if before.failed == "" && made.failed == "" {
			p.events.add(made.at, made.changes(&before.Survey)...)
		}
	}
	p.now, p.looking = made, false
	p.next = began.Add(max(leastPause, 2*made.took))
	close(p.changed)
	p.changed = make(chan struct{})
}

// Observe implements redlock.Observer: it notes what becomes of locks, and not each vote and renewal.
func (p *Page) Observe(e redlock.Event) {
	text, took := "", doctor.Short(e.Elapsed)
	switch e.Kind {
	case redlock.EventAcquired:
		votes := "votes"
		if e.Votes == 1 {
			votes = "vote"
		}
		text = fmt.Sprintf("%d %s after %v", e.Votes, votes, took)
	case redlock.EventLost, redlock.EventReleased:
		text = fmt.Sprint("held for ", took)
	case redlock.EventNotAcquired:
		text = fmt.Sprint("after ", took)
	default:
		return
	}
	if e.Err != nil {
		text += ": " + inOurWords(e.Err)
	}
	p.events.add(e.Time, Event{Lock: e.Name, What: e.Kind.String(), Text: text, By: "this process"})
}

const (
	keptEvents = 10_000
	mostEvents = 200 // in one answer
)

// A history has the last events. It is safe for concurrent use. The zero value is empty.
type history struct {
	mu   sync.Mutex
	ring []Event
	last int64 // the number of the latest
}

func (h *history) add(at time.Time, events ...Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		h.last++
		e.Number, e.Time = h.last, at.UTC().Format("2006-01-02T15:04:05.000Z")
		if len(h.ring) < keptEvents {
			h.ring = append(h.ring, e)
		} else {
			h.ring[(h.last-1)%keptEvents] = e
		}
	}
}

// since returns the latest events behind a number that are wanted, the latest first.
func (h *history) since(number int64, wanted func(*Event) bool) []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	some := []Event{}
	for n := h.last; n > max(number, h.last-int64(len(h.ring))) && len(some) < mostEvents; n-- {
		if e := &h.ring[(n-1)%keptEvents]; wanted(e) {
			some = append(some, *e)
		}
	}
	return some
}
