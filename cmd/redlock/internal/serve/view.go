package serve

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
)

//go:embed ui
var files embed.FS

// A view is the answer to GET /v1/survey.
type view struct {
	Version int64  `json:"version"`
	Age     int64  `json:"age_ms"`  // of what the servers hold
	Took    int64  `json:"took_ms"` // to ask them
	Error   string `json:"error,omitempty"`

	Total    int         `json:"total"`    // locks
	Matching int         `json:"matching"` // of them
	From     int         `json:"from"`     // of these, the first of Locks
	Locks    []LockState `json:"locks"`
	CutOff   bool        `json:"cut_off,omitempty"`

	Servers  []ServerState `json:"servers"`
	Sessions sessionsView  `json:"sessions"`
	Events   []Event       `json:"events"` // the latest first
	Lock     *lockView     `json:"lock,omitempty"`

	matching []*LockState // of which Locks has a page
}

// A lockView is all about one lock.
type lockView struct {
	Name   string      `json:"name"`
	States []LockState `json:"states"` // of its permits, and groups
	Events []Event     `json:"events"`
}

// A sessionsView is what clients have, without what would let another use it.
type sessionsView struct {
	Total int           `json:"total"`
	First []sessionView `json:"first"`
}

type sessionView struct {
	Owner    string      `json:"owner,omitempty"`
	TTL      int64       `json:"ttl_ms"`
	Requests int         `json:"requests"` // under way
	Total    int         `json:"total"`    // leases
	Leases   []leaseView `json:"leases"`   // the first
	Waits    []string    `json:"waits"`    // for locks of these names, the first
}

type leaseView struct {
	Names []string `json:"names"`
	Kind  string   `json:"kind"`
	Owner string   `json:"owner,omitempty"`
	Fence int64    `json:"fence,omitempty"`
	Lost  string   `json:"lost,omitempty"`
}

const (
	usualLocks   = 100 // in one answer
	mostLocks    = 100_000
	mostSessions = 100
	mostLeases   = 20
)

// pageRoutes are those of the page, if there is one.
func (s *Server) pageRoutes() map[string]route {
	return map[string]route{
		"GET /ui/":       {answer: showFile, isOpen: true}, // a browser asks for it without a token
		"GET /v1/survey": {answer: s.survey, do: rights.Look, with: surveyed},
	}
}

// policy lets the page load nothing from elsewhere, run no script that stands in it, and be in no frame.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// showFile answers with a file of the page, which holds no secret.
func showFile(w http.ResponseWriter, r *request) error {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	within(w, answerWithin)
	http.FileServerFS(files).ServeHTTP(w, r.Request)
	return nil
}

// surveyed returns the name in GET /v1/survey?name=NAME, if there is one.
func surveyed(r *request) (names []string, err error) {
	if name := r.URL.Query().Get("name"); name != "" {
		names = append(names, name)
	}
	return names, nil
}

// survey answers GET /v1/survey: with the last survey, or, as for a session, when there is another than
// the one that the client has seen.
func (s *Server) survey(w http.ResponseWriter, r *request) error {
	seen, wait, err := longPoll(r)
	if err != nil {
		return err
	}
	var from, after int64
	count := int64(usualLocks)
	for field, into := range map[string]*int64{"from": &from, "count": &count, "events_after": &after} {
		if *into, err = r.number(field, *into, "a whole number"); err != nil {
			return err
		} else if *into < 0 {
			return bad("%s=%d: must not be negative", field, *into)
		}
	}
	if count > mostLocks {
		return bad("count=%d must be at most %d", count, mostLocks)
	}
	q := r.URL.Query()
	ctx := r.Context()
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	} else {
		seen = 0
	}
	found, err := s.config.Page.latest(ctx, seen)
	if found == nil || err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	a := s.view(found, r.client, strings.ToLower(q.Get("filter")))
	a.page(int(min(from, mostLocks)), int(count))
	a.Events = s.config.Page.events.since(after, func(e *Event) bool { return e.isFor(r.client) })
	if name := q.Get("name"); name != "" {
		a.Lock = s.lockView(found, r.client, name)
	}
	return write(w, http.StatusOK, a)
}

// view returns what a client may look at, with all locks that match.
func (s *Server) view(of *snapshot, c *rights.Client, filter string) *view {
	a := &view{
		Version: of.version, Age: time.Since(of.at).Milliseconds(), Took: of.took.Milliseconds(), Error: of.failed,
		CutOff: of.CutOff, Servers: of.Servers, Sessions: s.table.view(of.at, c),
	}
	for i := range of.Locks {
		if l := &of.Locks[i]; c.May(rights.Look, l.Name) {
			a.Total++
			if l.matches(filter) {
				a.matching = append(a.matching, l)
			}
		}
	}
	a.Matching = len(a.matching)
	return a
}

// page takes those of the locks that are wanted: the last ones where there are not so many.
func (a *view) page(from, count int) {
	if from >= a.Matching {
		from = max(0, a.Matching-1)
		from -= from % max(1, count)
	}
	a.From, a.Locks = from, []LockState{}
	for _, l := range a.matching[from:min(from+count, a.Matching)] {
		shown := *l
		shown.Keys = nil
		a.Locks = append(a.Locks, shown)
	}
}

// lockView returns all about one lock.
func (s *Server) lockView(of *snapshot, c *rights.Client, name string) *lockView {
	a := &lockView{Name: name, States: []LockState{}}
	for _, l := range of.Locks {
		if l.Name == name {
			a.States = append(a.States, l)
		}
	}
	a.Events = s.config.Page.events.since(0, func(e *Event) bool { return e.Lock == name && e.isFor(c) })
	return a
}

// view returns what a client has, or what all have for one that may look at all, and for what they have waited
// since a moment.
func (t *table) view(since time.Time, c *rights.Client) sessionsView {
	all := slices.DeleteFunc(t.all(), func(s *session) bool { return s.client != c.Label && !c.MayAll(rights.Look) })
	slices.SortFunc(all, func(a, b *session) int { return cmp.Or(strings.Compare(a.owner, b.owner), strings.Compare(a.id, b.id)) })
	a := sessionsView{Total: len(all), First: []sessionView{}}
	for _, s := range all[:min(len(all), mostSessions)] {
		a.First = append(a.First, s.view(since))
	}
	return a
}

func (s *session) view(since time.Time) sessionView {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := sessionView{Owner: s.owner, TTL: s.ttl.Milliseconds(), Requests: s.requests, Total: len(s.leases), Leases: []leaseView{}, Waits: []string{}}
	for _, l := range s.leases {
		g := &l.granted
		a.Leases = append(a.Leases, leaseView{Names: g.Names, Kind: g.Kind, Owner: g.Owner, Fence: g.Fence, Lost: l.lost})
	}
	slices.SortFunc(a.Leases, func(a, b leaseView) int { return slices.Compare(a.Names, b.Names) })
	a.Leases = a.Leases[:min(len(a.Leases), mostLeases)]
	for w, began := range s.waits {
		if began.Before(since) {
			a.Waits = append(a.Waits, w.names()...)
		}
	}
	slices.Sort(a.Waits)
	a.Waits = slices.Compact(a.Waits)
	a.Waits = a.Waits[:min(len(a.Waits), mostLeases)]
	return a
}
