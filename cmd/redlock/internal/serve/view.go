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
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
)

//go:embed ui
var files embed.FS

// A view is the answer to GET /v1/survey.
type view struct {
	Version int64  `json:"version"`
	Age     int64  `json:"age_ms"`  // age of the survey
	Took    int64  `json:"took_ms"` // duration of the survey
	Error   string `json:"error,omitempty"`

	Total    int                `json:"total"`    // number of locks
	Matching int                `json:"matching"` // number of matching locks
	From     int                `json:"from"`     // index of the first of Locks among the matching ones
	Locks    []survey.LockState `json:"locks"`
	CutOff   bool               `json:"cut_off,omitempty"`

	Servers  []survey.ServerState `json:"servers"`
	Sessions api.Sessions         `json:"sessions"`
	Events   []survey.Event       `json:"events"` // the latest first
	Lock     *lockView            `json:"lock,omitempty"`

	matching []*survey.LockState // all matching locks; Locks has one page of them
}

// A lockView is everything about one lock.
type lockView struct {
	Name   string             `json:"name"`
	States []survey.LockState `json:"states"` // one for each of its permits, and for each group
	Events []survey.Event     `json:"events"`
}

const (
	usualLocks   = 100 // limit for one answer
	mostLocks    = 100_000
	mostSessions = 100
	mostLeases   = 20
)

// pageRoutes are the routes of the page.
func (s *Server) pageRoutes() map[string]route {
	return map[string]route{
		"GET /ui/":       {answer: showFile, isOpen: true}, // a browser asks for it without a token
		"GET /v1/survey": {answer: s.survey, do: rights.Look, with: surveyed},
	}
}

// policy keeps the page from loading anything from elsewhere, from running inline scripts, and from
// being in a frame.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// showFile answers with a file of the page. The files are not secret.
func showFile(w http.ResponseWriter, r *request) error {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	api.ReadWithin(w, api.AnswerWithin)
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

// survey answers GET /v1/survey with the last survey. As for a session, the request can wait for a
// survey that the client has not seen.
func (s *Server) survey(w http.ResponseWriter, r *request) error {
	seen, wait, err := api.LongPoll(r.Request)
	if err != nil {
		return err
	}
	var from, after int64
	count := int64(usualLocks)
	for field, into := range map[string]*int64{"from": &from, "count": &count, "events_after": &after} {
		if *into, err = api.Number(r.Request, field, *into, "a whole number"); err != nil {
			return err
		} else if *into < 0 {
			return api.Bad("%s=%d: must not be negative", field, *into)
		}
	}
	if count > mostLocks {
		return api.Bad("count=%d must be at most %d", count, mostLocks)
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
	a.Events = s.config.Page.events.since(after, func(e *survey.Event) bool { return mayShow(e, r.client) })
	if name := q.Get("name"); name != "" {
		a.Lock = s.lockView(found, r.client, name)
	}
	return api.Write(w, http.StatusOK, a)
}

// view returns the part of a snapshot that a client may see, with all matching locks.
func (s *Server) view(of *snapshot, c *rights.Client, filter string) *view {
	a := &view{
		Version: of.version, Age: time.Since(of.at).Milliseconds(), Took: of.took.Milliseconds(), Error: of.failed,
		CutOff: of.CutOff, Servers: of.Servers,
		Sessions: s.table.list(listing{since: of.at, leases: mostLeases, mayShow: func(s *session) bool { return s.client == c.Label || c.MayAll(rights.Look) }}),
	}
	for i := range of.Locks {
		if l := &of.Locks[i]; c.May(rights.Look, l.Name) {
			a.Total++
			if l.Matches(filter) {
				a.matching = append(a.matching, l)
			}
		}
	}
	a.Matching = len(a.matching)
	return a
}

// page selects count locks, starting at from, or the last page if there are fewer.
func (a *view) page(from, count int) {
	if from >= a.Matching {
		from = max(0, a.Matching-1)
		from -= from % max(1, count)
	}
	a.From, a.Locks = from, []survey.LockState{}
	for _, l := range a.matching[from:min(from+count, a.Matching)] {
		shown := *l
		shown.Keys = nil
		a.Locks = append(a.Locks, shown)
	}
}

// lockView returns everything about one lock.
func (s *Server) lockView(of *snapshot, c *rights.Client, name string) *lockView {
	a := &lockView{Name: name, States: []survey.LockState{}}
	for _, l := range of.Locks {
		if l.Name == name {
			a.States = append(a.States, l)
		}
	}
	a.Events = s.config.Page.events.since(0, func(e *survey.Event) bool { return e.Lock == name && mayShow(e, c) })
	return a
}

// A listing selects sessions.
type listing struct {
	mayShow func(*session) bool
	from    int       // index of the first session
	leases  int       // limit for the leases of a session
	since   time.Time // a wait that began later is not shown
}

// list returns sessions in the order of their clients and owners.
func (t *table) list(of listing) api.Sessions {
	all := slices.DeleteFunc(t.all(), func(s *session) bool { return !of.mayShow(s) })
	slices.SortFunc(all, func(a, b *session) int {
		return cmp.Or(strings.Compare(a.client, b.client), strings.Compare(a.owner, b.owner), strings.Compare(a.id, b.id))
	})
	a := api.Sessions{Total: len(all), Sessions: []api.ListedSession{}}
	from := min(of.from, len(all))
	for _, s := range all[from:min(from+mostSessions, len(all))] {
		a.Sessions = append(a.Sessions, s.listed(of))
	}
	return a
}

func (s *session) listed(of listing) api.ListedSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := api.ListedSession{
		ID: api.PublicID(s.id), Client: s.client, Owner: s.owner, TTL: s.ttl.Milliseconds(), Ended: s.ended, Requests: s.requests,
		Total: len(s.leases), Leases: []api.ListedLease{}, Waits: []string{},
	}
	for _, l := range s.leases {
		g := &l.granted
		a.Leases = append(a.Leases, api.ListedLease{ID: api.PublicID(l.id), Names: g.Names, Kind: g.Kind, Owner: g.Owner, Fence: g.Fence, Fences: g.Fences, Lost: l.lost})
	}
	slices.SortFunc(a.Leases, func(a, b api.ListedLease) int { return slices.Compare(a.Names, b.Names) })
	a.Leases = a.Leases[:min(len(a.Leases), of.leases)]
	for w, began := range s.waits {
		if began.Before(of.since) {
			a.Waits = append(a.Waits, w.AllNames()...)
		}
	}
	slices.Sort(a.Waits)
	a.Waits = slices.Compact(a.Waits)
	a.Waits = a.Waits[:min(len(a.Waits), mostLeases)]
	return a
}
