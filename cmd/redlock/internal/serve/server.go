package serve

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
)

// A Config configures a Server.
type Config struct {
	TTL         time.Duration // default TTL of locks and sessions
	Limits      Limits
	Rights      Rights                  // rights of clients; nil: any client may do everything
	Log         func(string)            // logs messages for an operator; nil for no log
	Connections func() int              // number of connected clients; nil if unknown
	Files       func() (open, most int) // number and limit of the process's open files; 0 if unknown
	Metrics     *measure.Exporter       // observes the Locker, for /metrics; nil for none
	Hosts       []string                // further names with the meaning of localhost
	IsLoopback  bool                    // the server listens on this machine only, and rejects requests of web pages
	Audit       Audit                   // records what happens to locks; nil for none
	Page        *Page                   // page at /ui, with its contents at /v1/survey; nil for none
	Resumes     bool                    // Resume will be called; until it returns, requests for sessions wait, and others get 503

	Office    string // office for which the server campaigns; empty for none
	Candidate string // ID of the candidate, for people
}

// A Server is an http.Handler that offers the locks of a Locker to clients. It is safe for
// concurrent use.
type Server struct {
	locker *redlock.Locker
	config Config
	table  *table
	mux    http.Handler
	office *office // nil without Config.Office
	ready  readiness

	watches watches

	counting sync.Mutex
	counts   map[string]*counts // by the labels of clients; guarded by counting

	waiting context.Context // context of requests that wait for a lock; ends with the server
	end     context.CancelFunc
	once    sync.Once
	leaves  atomic.Bool // the server's sessions were handed over

	resumed chan struct{} // closed when all sessions of the previous server are present
}

// isEnding reports whether Close or Leave was called.
func (s *Server) isEnding() bool { return s.waiting.Err() != nil }

// Rights are the known clients, with their rights. They may change at any time.
type Rights interface {
	Current() rights.Table // last valid table
	Wrong() error          // error of the present file, or nil
}

// counts are the numbers of requests of a client.
type counts struct {
	granted  int64
	refused  map[string]int64 // by the kind of the problem
	loggedAt time.Time        // time of the last refusal in the log
}

// readiness is the last known state of the servers: whether a quorum answers.
type readiness struct {
	mu   sync.Mutex
	at   time.Time // time of the last look; guarded by mu, like good
	good bool
}
