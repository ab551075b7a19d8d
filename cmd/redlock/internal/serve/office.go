package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/redlock"
)

// An office is the campaign of a server for Config.Office, until the server ends. A program on the
// same machine asks GET /leader whether it leads, and works for as long as the answer permits:
//
//	campaigns ──has the lock──▶ leads ──the server ends──▶ ends: waits until the last promise to a
//	    ▲                        │  │                       │    program has ended
//	    │◀─────────lost──────────┘  └──DELETE /leader──┐    │
//	    │                                              ▼    ▼
//	    └──────────────after a pause──────────────── released
//
// It is safe for concurrent use.
type office struct {
	id   string
	ttl  time.Duration
	log  func(string)
	stop context.CancelFunc // ends the campaign
	done chan struct{}      // closed when the campaign has ended and its lock is released

	mu         sync.Mutex
	ends       context.Context // canceled under mu when the server ends
	cancel     context.CancelFunc
	leading    *leading      // nil while the candidate does not lead
	validUntil time.Time     // end of the latest promise to a program that it leads
	changed    chan struct{} // closed when token changes
}

// leading is a term of office.
type leading struct {
	election.Term
	over     bool            // no program gets another promise
	resigned context.Context // ends when the program has ended its work
	resign   context.CancelFunc
}

// A leaderAnswer reports whether a program leads.
type leaderAnswer struct {
	Leader   bool   `json:"leader"`
	ID       string `json:"id"`           // ID of this candidate
	Token    int64  `json:"token"`        // token of its term; 0 for none
	ValidFor int64  `json:"valid_for_ms"` // counted from the sending of the request
}

// newOffice starts to campaign as the candidate with that ID.
func newOffice(e *election.Election, id string, ttl time.Duration, log func(string)) *office {
	ctx, stop := context.WithCancel(context.Background())
	o := &office{id: id, ttl: ttl, log: log, stop: stop, done: make(chan struct{}), changed: make(chan struct{})}
	o.ends, o.cancel = context.WithCancel(context.Background())
	go o.campaign(ctx, e)
	return o
}

// refusedFor is the pause after a permanent failure.
const refusedFor = 2 * time.Second

// campaign campaigns until the server ends. It logs a permanent failure once, and tries again,
// because an operator may repair the servers, and the locks of clients need this process.
func (o *office) campaign(ctx context.Context, e *election.Election) {
	defer close(o.done)
	defer o.stop()
	last := ""
	for {
		err := e.Run(ctx, o.id, o.lead)
		if err == nil || errors.Is(err, api.ErrEnding) || errors.Is(err, redlock.ErrClosed) {
			return
		}
		if text := err.Error(); text != last {
			last = text
			o.log("--office is not granted, and is tried again: " + text)
		}
		select {
		case <-time.After(refusedFor):
		case <-ctx.Done():
			return
		}
	}
}

// lead leads until the term is lost or resigned, or the server ends.
func (o *office) lead(ctx context.Context, t election.Term) error {
	l := o.begin(t)
	defer l.resign()
	select {
	case <-ctx.Done():
	case <-l.resigned.Done():
	case <-o.ends.Done():
	}
	timer := time.NewTimer(time.Until(o.finish(l)))
	defer timer.Stop()
	select { // the lock is released when this function returns
	case <-ctx.Done():
	case <-l.resigned.Done():
	case <-timer.C:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leading = nil
	if o.ends.Err() == nil {
		return nil
	}
	if ctx.Err() != nil {
		o.stop()
	} // otherwise Run's context does not end, so that it waits for the release
	return api.ErrEnding
}

// begin records the start of a term.
func (o *office) begin(t election.Term) *leading {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &leading{Term: t, over: o.ends.Err() != nil}
	l.resigned, l.resign = context.WithCancel(context.Background())
	o.leading = l
	o.changes()
	return l
}

// finish ends the promises of a term, and returns the end of the latest promise.
func (o *office) finish(l *leading) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !l.over {
		l.over = true
		o.changes()
	}
	return o.validUntil
}

// changes wakes the requests that wait for a change. The caller must hold mu.
func (o *office) changes() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// token returns the token of the term, or 0. The caller must hold mu.
func (o *office) token() int64 {
	if o.leading == nil || o.leading.over {
		return 0
	}
	return o.leading.Token()
}

// look returns the answer to a request that arrived at the given time. The caller must hold mu.
func (o *office) look(since time.Time) leaderAnswer {
	a := leaderAnswer{ID: o.id, Token: o.token()}
	if a.Token != 0 {
		waited := time.Since(since) // read first, because this process may be stopped between the two readings
		left := o.leading.Remaining()
		a.ValidFor = validFor(term{left: left, ttl: o.ttl, session: left}, waited).Milliseconds()
	}
	a.Leader = a.ValidFor > 0
	return a
}

// tell is like look, for an answer that a program may rely on.
func (o *office) tell(since time.Time) leaderAnswer {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.look(since)
	if end := since.Add(api.Duration(a.ValidFor)); a.Leader && end.After(o.validUntil) {
		o.validUntil = end
	}
	return a
}

// leads reports whether the candidate leads, for programs that only look for the leader. The result
// promises nothing.
func (o *office) leads() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.look(time.Now()).Leader
}

// await returns when the token differs from the one that a program has seen, or after a time. The
// wait is short for a leader, because its term is renewed in the meantime, and at the end of the
// server.
func (o *office) await(r *request, seen int64, limit time.Duration) {
	o.mu.Lock()
	token, changed := o.token(), o.changed
	if token != 0 {
		limit = min(limit, o.ttl/3)
	}
	if o.ends.Err() != nil {
		limit = min(limit, time.Second)
	}
	o.mu.Unlock()
	if token == seen {
		r.await(changed, limit)
	}
}

// resign releases the term with a token after the program has ended its work. It returns false if
// the token belongs to another term.
func (o *office) resign(token int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.leading
	if l == nil || l.Token() != token || l.resigned.Err() != nil {
		return false
	}
	o.validUntil = time.Time{}
	l.over = true
	l.resign()
	o.changes()
	return true
}

// end ends the promises, and releases the term after the end of the latest promise.
func (o *office) end() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ends.Err() != nil {
		return
	}
	o.cancel()
	if o.leading == nil {
		o.stop()
	} else {
		o.leading.over = true
	}
	o.changes()
}

// wait waits after end until the term is released. If ctx ends first, it returns 1, for a lock that
// is left to expire.
func (o *office) wait(ctx context.Context) (left int) {
	if o == nil {
		return 0
	}
	o.mu.Lock()
	until := o.validUntil
	o.mu.Unlock()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-o.done:
		return 0
	case <-timer.C:
	case <-ctx.Done():
		if until.After(time.Now()) {
			return 1
		}
	}
	defer time.AfterFunc(o.ttl, o.stop).Stop() // the term may be lost during its release: Run would campaign again
	<-o.done
	return 0
}
