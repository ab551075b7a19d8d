package serve

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
)

// A Config says how a Server serves.
type Config struct {
	TTL         time.Duration // of locks and sessions whose clients do not say
	Limits      Limits
	Rights      Rights                  // of clients; nil: anybody may do all
	Log         func(string)            // what an operator should know; nil for nobody
	Connections func() int              // how many clients are connected; nil: not known
	Files       func() (open, most int) // how many files the process has and may have open; 0: not known
	Metrics     *measure.Exporter       // observes the Locker, for /metrics; nil for none
	Hosts       []string                // names by which it may be reached as by localhost
	IsLoopback  bool                    // it listens to this machine only, and refuses what web pages send to it
	Page        *Page                   // at /ui, and what it shows at /v1/survey; nil for none
	Resumes     bool                    // Resume is called: until it has returned, requests for sessions wait, and others get 503

	Office    string // for which the server campaigns; empty for none
	Candidate string // who it is there, for people
}

// A Server is an http.Handler that gives the locks of a Locker to clients. It is safe for concurrent use.
type Server struct {
	locker *redlock.Locker
	config Config
	table  *table
	mux    http.Handler
	office *office // nil without Config.Office
	ready  readiness

	counting sync.Mutex
	counts   map[string]counts // by the labels of clients; guarded by counting

	waiting context.Context // of those who wait for a lock; ends when the server does
	end     context.CancelFunc
	once    sync.Once
	leaves  atomic.Bool // another one goes on with its sessions

	resumed chan struct{} // closed when all sessions of the one before are there
}

// New returns a Server for the locks of locker, which stays the caller's.
func New(locker *redlock.Locker, c Config) *Server {
	if c.Log == nil {
		c.Log = func(string) {}
	}
	c.Limits.Sessions = cmp.Or(c.Limits.Sessions, 10_000)
	c.Limits.Leases = cmp.Or(c.Limits.Leases, 1_000)
	c.Limits.Total = cmp.Or(c.Limits.Total, 100_000)
	s := &Server{locker: locker, config: c, table: newTable(c.Limits), counts: map[string]counts{}}
	s.resumed = make(chan struct{})
	if !c.Resumes {
		close(s.resumed)
	}
	s.waiting, s.end = context.WithCancel(context.Background())
	if c.Page != nil {
		c.Page.start(s.waiting, s.table)
	}
	s.office = newOffice(locker, &s.config)
	s.mux = s.newMux()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer within(w, answerWithin) // net/http sends the end of the answer behind this
	if r.ContentLength != 0 {
		// Not by http.Server.ReadTimeout, which ends the context of requests that wait, too. It stays for what
		// is not read here: net/http reads that behind the answer.
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWithin))
	}
	if err := s.config.refuses(r); err != nil {
		problemOf(err).write(w)
		return
	}
	s.mux.ServeHTTP(writer{w, s}, r)
}

// A writer says with each answer of a server that ends that the connection ends, too. The client's next
// request would else be on its way on it when it is closed, and have no answer.
type writer struct {
	http.ResponseWriter
	server *Server
}

// WriteHeader implements http.ResponseWriter.
func (w writer) WriteHeader(status int) {
	if w.server.isEnding() {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Close grants no more locks, tells all clients that the server ends, waits until they have released
// their leases or ctx has ended, and releases the rest, but those of which a client was told that it may
// work under them for longer. It returns how many it released, and how many it left; the office is one of
// them, and is given back as soon as no program can believe that it leads. What clients are told meanwhile
// is over by the deadline of ctx. Close waits for the releases for as long as they take, which the Locker's
// node timeout bounds.
//
// Locks that are left expire when their process has ended. Closing the Locker would release them.
func (s *Server) Close(ctx context.Context) (released, left int) {
	s.once.Do(func() {
		s.end()
		end, _ := ctx.Deadline()
		s.table.close(end)
		s.office.end()
	})
	s.table.claims.Wait() // a tick that is marked has its lease first
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for released = s.table.held(); released > 0; released = s.table.held() {
		select {
		case <-look.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	for _, each := range s.table.all() {
		left += each.close()
	}
	s.table.ends.Wait()
	if s.config.Page != nil {
		s.config.Page.wait()
	}
	return released - left, left + s.office.wait(ctx)
}

// isEnding reports whether Close or Leave was called.
func (s *Server) isEnding() bool { return s.waiting.Err() != nil }
