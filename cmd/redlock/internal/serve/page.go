package serve

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
	"github.com/redquorum/redquorum/redlock"
)

// A Page shows the locks on the servers, the servers, the sessions and recent events to people and
// programs. It surveys the servers while a viewer waits for news, once for all viewers. It is safe
// for concurrent use. It is also a redlock.Observer, for the Server's Locker.
type Page struct {
	// Look surveys the servers. The Page calls it at most once a second, not concurrently, and for
	// at most half of the time.
	Look func(context.Context) (*survey.Survey, error)

	ctx   context.Context // ends with the server
	table *table          // table of the server's clients

	mu      sync.Mutex
	now     *snapshot     // last snapshot; nil before the first
	changed chan struct{} // closed when there is another snapshot
	looking bool          // a survey is in progress
	next    time.Time     // earliest start of the next survey
	made    sync.WaitGroup

	events history
}

// A snapshot is a finished survey. It never changes.
type snapshot struct {
	survey.Survey
	version int64
	at      time.Time
	took    time.Duration
	failed  string // reason there is no survey
}

const (
	leastPause = time.Second // time between two surveys, from start to start
	lookWithin = time.Minute // limit for a survey: a server with very many keys takes a while
)

// start makes the page of a server ready, until ctx ends.
func (p *Page) start(ctx context.Context, of *table) {
	p.ctx, p.table, p.changed = ctx, of, make(chan struct{})
}

// wait returns when the last look has ended. The context of the page has ended before.
func (p *Page) wait() {
	p.mu.Lock()
	p.looking = true // prevents another survey
	p.mu.Unlock()
	p.made.Wait()
}

// latest waits for a snapshot that is recent and new to the viewer, and returns it.
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
			return nil, api.ErrEnding
		}
	}
}

// look makes one snapshot, when it is due.
func (p *Page) look() {
	wait := time.NewTimer(time.Until(p.next)) // only look changes it
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
		made.Sort()
		p.table.clients(began).addTo(&made.Survey)
		for i := range made.Servers {
			made.Servers[i].Health = made.Servers[i].JudgeHealth()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.now; before != nil {
		made.version = before.version + 1
		if before.failed == "" && made.failed == "" {
			p.events.add(made.at, made.Changes(&before.Survey)...)
		}
	}
	p.now, p.looking = made, false
	p.next = began.Add(max(leastPause, 2*made.took))
	close(p.changed)
	p.changed = make(chan struct{})
}

// Observe implements redlock.Observer. It records acquisitions, ends and failures of locks, but no
// votes and renewals.
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
		text += ": " + api.Text(e.Err)
	}
	p.events.add(e.Time, survey.Event{Lock: e.Name, What: e.Kind.String(), Text: text, By: "this process"})
}

const (
	keptEvents = 10_000
	mostEvents = 200 // limit for one answer
)

// A history has the last events. It is safe for concurrent use. The zero value is empty.
type history struct {
	mu   sync.Mutex
	ring []survey.Event
	last int64 // number of the latest event
}

func (h *history) add(at time.Time, events ...survey.Event) {
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

// since returns the requested events after a number, the latest first.
func (h *history) since(number int64, wanted func(*survey.Event) bool) []survey.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	some := []survey.Event{}
	for n := h.last; n > max(number, h.last-int64(len(h.ring))) && len(some) < mostEvents; n-- {
		if e := &h.ring[(n-1)%keptEvents]; wanted(e) {
			some = append(some, *e)
		}
	}
	return some
}
