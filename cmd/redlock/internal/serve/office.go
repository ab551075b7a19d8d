package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/redlock"
)

// An office is that of Config.Office, for which a server campaigns until it ends. A program beside it asks
// GET /leader whether it leads, and works for as long as the answer says:
//
//	campaigns ──has the lock──▶ leads ──the server ends──▶ told: waits until no program has been told
//	    ▲                        │  │                       │    that it still leads
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

	mu      sync.Mutex
	ends    context.Context // ends by cancel under mu, when the server does
	cancel  context.CancelFunc
	leading *leading      // nil: it does not lead
	told    time.Time     // until when a program has been told that it leads
	changed chan struct{} // closed when token changes
}

// leading is a term of office.
type leading struct {
	election.Term
	over     bool            // no program is told any more that it leads
	resigned context.Context // ends when the program has ended its work
	resign   context.CancelFunc
}

// A leaderAnswer says whether a program leads.
type leaderAnswer struct {
	Leader   bool   `json:"leader"`
	ID       string `json:"id"`           // of this candidate
	Token    int64  `json:"token"`        // of its term; 0 for none
	ValidFor int64  `json:"valid_for_ms"` // from when the request was sent
}

// newOffice begins to campaign. It returns nil if the Config has no Office.
func newOffice(locker *redlock.Locker, c *Config) *office {
	if c.Office == "" {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	o := &office{id: c.Candidate, ttl: c.TTL, log: c.Log, stop: stop, done: make(chan struct{}), changed: make(chan struct{})}
	o.ends, o.cancel = context.WithCancel(context.Background())
	go o.campaign(ctx, election.New(locker, c.Office, redlock.TTL(c.TTL)))
	return o
}

// refusedFor is how long servers are left alone that will not grant the office as they are.
const refusedFor = 2 * time.Second

// campaign campaigns until the server ends. What patience does not help against is told, once, and tried
// again: an operator may mend the servers, and the locks of clients need this process.
func (o *office) campaign(ctx context.Context, e *election.Election) {
	defer close(o.done)
	defer o.stop()
	last := ""
	for {
		err := e.Run(ctx, o.id, o.lead)
		if err == nil || errors.Is(err, errEnding) || errors.Is(err, redlock.ErrClosed) {
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

// lead leads until the term is lost, is resigned, or the server ends.
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
	return errEnding
}

// begin notes that a term begins.
func (o *office) begin(t election.Term) *leading {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &leading{Term: t, over: o.ends.Err() != nil}
	l.resigned, l.resign = context.WithCancel(context.Background())
	o.leading = l
	o.changes()
	return l
}

// finish has no program told any more that it leads. It returns until when one has been told so.
func (o *office) finish(l *leading) (told time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !l.over {
		l.over = true
		o.changes()
	}
	return o.told
}

// changes tells those who wait for a change. The office must be locked.
func (o *office) changes() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// token returns that of the term, or 0. The office must be locked.
func (o *office) token() int64 {
	if o.leading == nil || o.leading.over {
		return 0
	}
	return o.leading.Token()
}

// look returns an answer for a request that came at a time. The office must be locked.
func (o *office) look(since time.Time) leaderAnswer {
	a := leaderAnswer{ID: o.id, Token: o.token()}
	if a.Token != 0 {
		waited := time.Since(since) // first: this process may be stopped between the two
		left := o.leading.Remaining()
		a.ValidFor = validFor(term{left: left, ttl: o.ttl, session: left}, waited).Milliseconds()
	}
	a.Leader = a.ValidFor > 0
	return a
}

// tell is look for an answer that a program may rely on.
func (o *office) tell(since time.Time) leaderAnswer {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.look(since)
	if end := since.Add(millis(a.ValidFor)); a.Leader && end.After(o.told) {
		o.told = end
	}
	return a
}

// leads reports whether the candidate leads, to those who only find the way to it: the answer is good for
// no time.
func (o *office) leads() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.look(time.Now()).Leader
}

// await returns when the token is not the one that a program has seen, or after a time. That is short for a
// leader, whose end has moved by then, and when the server ends.
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

// resign gives back the term with a token, under which the program works no more. It reports false if it is
// not that of this candidate.
func (o *office) resign(token int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.leading
	if l == nil || l.Token() != token || l.resigned.Err() != nil {
		return false
	}
	o.told = time.Time{}
	l.over = true
	l.resign()
	o.changes()
	return true
}

// end has no program told any more that it leads, and gives the term back when those that have been told
// so must have ended their work.
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

// wait waits behind end until the term is given back. It returns 1, for a lock that is left to expire, if
// ctx ends before.
func (o *office) wait(ctx context.Context) (left int) {
	if o == nil {
		return 0
	}
	o.mu.Lock()
	told := o.told
	o.mu.Unlock()
	timer := time.NewTimer(time.Until(told))
	defer timer.Stop()
	select {
	case <-o.done:
		return 0
	case <-timer.C:
	case <-ctx.Done():
		if told.After(time.Now()) {
			return 1
		}
	}
	defer time.AfterFunc(o.ttl, o.stop).Stop() // the term may be lost while it is given back: Run would want another
	<-o.done
	return 0
}

// ofOffice returns the name of the office: what a request about it must have the right for.
func (s *Server) ofOffice(*request) ([]string, error) {
	if s.office == nil {
		return nil, errNoOffice
	}
	return []string{s.config.Office}, nil
}

// showLeader answers GET /leader: at once, or when the token is not the one that the program has seen.
func (s *Server) showLeader(w http.ResponseWriter, r *request) error {
	seen, wait, err := longPoll(r)
	if err != nil {
		return err
	}
	if wait > 0 {
		s.office.await(r, seen, wait)
		if err := s.mayStill(r, rights.Lock, []string{s.config.Office}); err != nil {
			return err
		}
	}
	a := s.office.tell(r.since)
	return write(w, statusOf(a.Leader), a)
}

// resign answers DELETE /leader?token=N.
func (s *Server) resign(w http.ResponseWriter, r *request) error {
	token, err := r.number("token", 0, "the token of the term that is resigned")
	switch {
	case err != nil:
		return err
	case token == 0:
		return bad("token=TOKEN is missing: specify the token of the term to resign")
	case !s.office.resign(token):
		return errTermOver
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
