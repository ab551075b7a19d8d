package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve"
	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
)

const serveHelp = `Serves locks over HTTP to long-running programs in any language: web workers, services. Run one
for each machine, or one for each program.

A client creates a session, acquires locks in it, and can ask for its state at any time. Each
response has the time that the client may work under its locks, counted from the sending of the
request. redlock renews the locks. If a session sends no request for its TTL, its locks are
released.

It listens at the socket that systemd passes, otherwise at --listen or $REDLOCK_LISTEN, otherwise at
/run/redlock.sock. A TCP address that other machines reach needs TLS, and --tokens, --token-file
or --client-ca. With --tokens each client has the rights and the share of its entry in that file;
docs/SERVE.md has an example.

On SIGTERM it grants no more locks, notifies its clients, and waits for at most --stop-within until
they have released theirs. With --state it ends at once and writes sessions and locks to that
file, and the next redlock serve takes them over. The file is a secret.

With --audit a line of JSON is appended to FILE for each event of a lock: granted, refused,
released, lost, or left (to expire, when redlock ends). client is the label in --tokens; session and
lease are public ids, as in GET /v1/sessions. SIGHUP opens FILE again, after its rotation. If FILE
cannot be written, redlock_serve_audit_failed_total counts the lost entries, and locks still work.

With --office redlock campaigns for the office NAME: GET /leader reports whether the program next
to it leads, and for how long. When redlock ends, it releases the office after the time that it has
reported to the program.

Exit codes:
  0      ended by a signal, and all locks are released, or expire
  1      anything else, such as a socket that is in use
` + wrongCodes

// A serveCommand is one run of "redlock serve".
type serveCommand struct {
	*servers
	entrance                               entrance
	state                                  stateFile
	ttl, grace                             time.Duration
	page                                   bool
	office                                 string
	candidate                              string // for the office
	probesAt                               string
	auditAt                                string
	stdout                                 io.Writer
	maxSessions, maxLeases, maxConnections int
}

func newServe() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve locks over HTTP, to programs in any language",
		Long:  serveHelp,
		Example: `  redlock serve --listen unix:/run/redlock.sock
  curl --unix-socket /run/redlock.sock --json '{"name":"nightly"}' http://redlock/v1/locks`,
		Args: noArguments,
	}
	s := &serveCommand{servers: serverFlags(c)}
	s.logging.livesOn = true
	f := c.Flags()
	s.targets.embeddedFlag()
	s.entrance.addFlags(&s.servers.cli)
	f.DurationVar(&s.ttl, "ttl", 10*time.Second, "default TTL of locks and sessions; between 1s and 1h")
	f.DurationVar(&s.grace, "stop-within", 10*time.Second, "how long clients have to release their locks when redlock ends")
	f.StringVar((*string)(&s.state), "state", "", "`FILE` in which sessions and locks outlive a restart that takes less than their TTL")
	f.IntVar(&s.maxSessions, "max-sessions", 10_000, "limit of sessions")
	f.IntVar(&s.maxLeases, "max-leases", 1_000, "limit of locks in one session")
	f.IntVar(&s.maxConnections, "max-connections", 10_000, "limit of connections; lowered if this process may not open that many files")
	f.BoolVar(&s.page, "ui", false, "serve a page that shows locks and servers, at /ui")
	f.StringVar(&s.office, "office", "", "campaign for the office `NAME`; GET /leader reports whether this candidate leads")
	f.StringVar(&s.candidate, "candidate", "", "`ID` of this candidate, for people; at most 128 bytes (default: the name of the machine)")
	f.StringVar(&s.auditAt, "audit", "", "`FILE` to which a line of JSON is appended for each grant, refusal and end of a lock; - is standard output")
	f.StringVar(&s.probesAt, "probes", "", "`HOST:PORT` to answer /healthz, /readyz and /leader at, with a status only, and /metrics")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := s.check(); err != nil {
			return err
		}
		s.stdout = c.OutOrStdout()
		return s.run(c.Context())
	}
	return c
}

func (s *serveCommand) check() error {
	switch {
	case s.ttl < time.Second || s.ttl > time.Hour:
		return wrong(s.flags, "ttl", "must be between 1s and 1h")
	case s.locking.maxTTL != 0 && s.locking.maxTTL < s.ttl:
		return wrong(s.flags, "max-ttl", "must be at least --ttl, %v", s.ttl)
	case s.locking.nodeTimeout >= s.ttl:
		return wrong(s.flags, "node-timeout", "must be below --ttl, %v", s.ttl)
	case s.grace < 0:
		return wrong(s.flags, "stop-within", "must not be negative")
	case s.maxSessions < 1 || s.maxLeases < 1 || s.maxConnections < 1:
		return usageErrorf("--max-sessions, --max-leases and --max-connections must be at least 1")
	case s.candidate != "" && s.office == "":
		return usageErrorf("--candidate needs --office: it names the candidate for that office")
	}
	if _, _, err := net.SplitHostPort(s.probesAt); s.probesAt != "" && err != nil {
		return wrong(s.flags, "probes", "%q: must be HOST:PORT, or :PORT for all addresses", s.probesAt)
	}
	if err := s.entrance.check(); err != nil || s.office == "" {
		return err
	}
	return s.locking.checkName(s.office)
}

// onHangup has the function that handles SIGHUP and does not wait, or nothing if SIGHUP ends the
// command.
var onHangup atomic.Value

// run serves until ctx ends.
func (s *serveCommand) run(ctx context.Context) error {
	reread.ReapOrphans()
	// If the reader of the log has ended, SIGPIPE must not end this process, which has the locks of
	// others.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	hangups := make(chan struct{}, 1) // several wait as one
	onHangup.Store(func() {
		select {
		case hangups <- struct{}{}:
		default:
		}
	})
	log := func(text string) { fmt.Fprintf(s.stderr, "redlock: %s\n", plain.OneLine(text)) }
	var audit *auditFile
	if s.auditAt != "" {
		var err error
		if audit, err = openAudit(s.auditAt, s.stdout, log); err != nil {
			return wrong(s.flags, "audit", "%w", err)
		}
		defer audit.close()
	}
	d, err := s.entrance.open()
	if err != nil {
		return err
	}
	defer d.listener.Close()
	open, end := context.WithCancel(context.WithoutCancel(ctx)) // the audit also rotates while clients end
	defer end()
	go s.reload(open, hangups, d.rights, audit)
	sets, stopServers, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer stopServers()
	if err := s.fitConnections(sets, descriptors()); err != nil {
		return err
	}
	host, _ := os.Hostname()
	config := serve.Config{
		Office: s.office, Candidate: cmp.Or(s.candidate, host, "unknown"), TTL: s.ttl, Limits: serve.Limits{Sessions: s.maxSessions, Leases: s.maxLeases}, Rights: d.rights, IsLoopback: d.isLoopback, Hosts: s.entrance.hosts,
		Metrics: measure.NewExporter(), Files: func() (open, most int) { return openFiles(), descriptors() },
		Log: log,
	}
	if audit != nil {
		config.Audit = audit
	}
	opts := []redlock.LockerOption{redlock.TTL(s.ttl), redlock.Observe(config.Metrics)}
	if s.page {
		surveyor := &surveyor{servers: s.servers, sets: sets}
		config.Page = &serve.Page{Look: surveyor.look}
		opts = append(opts, redlock.Observe(config.Page))
	}
	locker, err := s.open(sets, opts...)
	if err != nil {
		return err
	}
	clients := &connections{Listener: d.listener, most: s.maxConnections, limit: "--max-connections", log: config.Log}
	config.Connections = func() int { return int(clients.open.Load()) }
	kept, err := s.serveLocks(ctx, locker, config, d.address, clients)
	if !kept {
		locker.Close()
	} // without Close the locks survive the end of this process
	return err
}

// reload opens the audit and reads the rights again after each hangup, one after another. It has its
// own goroutine, because a disk or the log may hang. Other files are read for each connection.
func (s *serveCommand) reload(ctx context.Context, hangups <-chan struct{}, rights serve.Rights, audit *auditFile) {
	for {
		select {
		case <-hangups:
		case <-ctx.Done():
			return
		}
		if audit != nil {
			audit.rotate()
		}
		text := "read the rights again"
		if rights != nil {
			rights.Current() // reports a mistake once
			if err := rights.Wrong(); err != nil {
				text = fmt.Sprintf("kept the last valid rights (%s)", plain.OneLine(err.Error()))
			}
		}
		text += "; other files are read for each connection"
		if audit != nil {
			text += "; --audit is opened again"
		}
		fmt.Fprintf(s.stderr, "redlock: SIGHUP: %s\n", text)
	}
}

// serveLocks serves until ctx ends. It reports whether the locks survive the end of this process.
func (s *serveCommand) serveLocks(ctx context.Context, locker *redlock.Locker, config serve.Config, address string, clients *connections) (kept bool, err error) {
	if err := locker.Check(redlock.Owner(config.Candidate)); err != nil {
		refused := new(redlock.OptionError)
		errors.As(err, &refused)
		return false, wrong(s.flags, "candidate", "%s", cmp.Or(refused.Reason, err.Error()))
	}
	config.Resumes = s.state != ""
	server := serve.New(locker, config)
	stopProbes, err := s.serveProbes(server, config.Log)
	if err != nil {
		return false, err
	}
	defer stopProbes()
	finish, err := s.resume(ctx, server)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(s.stderr, "redlock: serving at %s\n", address) // the socket listens, so clients can connect now
	return s.serve(ctx, clients, server, finish)
}

// serve serves until ctx ends. Then it calls finish to end the resumption, and gives the clients
// time to end. It reports whether locks are kept, to expire or for the next redlock serve.
func (s *serveCommand) serve(ctx context.Context, clients *connections, server *serve.Server, finish func()) (kept bool, failure error) {
	over := clients.server(server)
	failed := make(chan error, 1)
	go func() { failed <- over.Serve(clients) }()
	daemon.SdNotify(false, daemon.SdNotifyReady)
	select {
	case err := <-failed:
		finish()
		now, cancel := context.WithTimeout(ctx, 0)
		defer cancel()
		_, left := server.Close(now)
		return left > 0, err
	case <-ctx.Done():
	}
	daemon.SdNotify(false, daemon.SdNotifyStopping)
	finish()
	if s.state != "" {
		err := s.leave(server, s.state.write)
		if err == nil {
			over.Close() // closed only now, so that the next process finds the file
			return true, nil
		}
		fmt.Fprintf(s.stderr, "redlock: --state could not be written, so the next redlock serve takes over nothing: %v; clients have %v to release their locks\n", err, s.grace)
		defer func() { failure = &exitError{code: exitFailed, err: fmt.Errorf("--state: %w", err)} }()
	}
	grace, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()
	released, left := server.Close(grace)
	if released > 0 {
		fmt.Fprintf(s.stderr, "redlock: released %d locks that clients had not released within %v\n", released, s.grace)
	}
	if left > 0 {
		fmt.Fprintf(s.stderr, "redlock: left %d locks to expire: earlier answers permit clients to work for longer than --stop-within %v\n", left, s.grace)
	}
	if over.Shutdown(grace) != nil {
		over.Close()
	}
	return left > 0, nil
}

// stateWithin is the limit for writing --state. Clients get no answer in the meantime.
const stateWithin = 10 * time.Second

// leave writes the state that the next redlock serve resumes. Before the file appears, this process
// disconnects from the servers. Otherwise, after a stop of longer than a TTL, this process would
// consider its locks expired and release them on the servers, although the next redlock serve has
// adopted their values.
//
// If write fails or hangs, the server stays, and is closed as without --state. Otherwise this process
// would renew locks that no client can release for as long as the disk hangs.
func (s *serveCommand) leave(server *serve.Server, write func(state serve.State, before func() error) error) (err error) {
	left := server.Leave()
	turn, written := make(chan struct{}, 1), make(chan error, 1)
	turn <- struct{}{} // taken to complete the file, or to give up
	go func() {
		written <- write(left, func() error {
			select {
			case <-turn:
				s.servers.disconnect()
				return nil
			default:
				return errors.New("it was too late")
			}
		})
	}()
	select {
	case err = <-written:
	case <-time.After(stateWithin):
		select {
		case <-turn:
			err = fmt.Errorf("the disk did not answer within %v", stateWithin)
		case err = <-written:
		}
	}
	if err != nil {
		server.Stay()
	}
	return err
}

// resume begins to take over the state of the last redlock serve. finish ends the resumption. Locks
// that are not adopted by then can be left to the next process.
func (s *serveCommand) resume(ctx context.Context, server *serve.Server) (finish func(), err error) {
	if s.state == "" {
		return func() {}, nil
	}
	left, err := s.state.take()
	if err != nil {
		return func() {}, wrong(s.flags, "state", "%w", err)
	}
	if len(left.Sessions) == 0 {
		server.Resume(ctx, left)
		return func() {}, nil
	}
	ctx, stop := context.WithCancel(ctx)
	resumed := make(chan struct{})
	go func() {
		defer close(resumed)
		kept, lost := server.Resume(ctx, left)
		if kept+lost > 0 {
			fmt.Fprintf(s.stderr, "redlock: took over %d locks of the last redlock serve; %d were lost\n", kept, lost)
		}
	}()
	return func() {
		stop()
		<-resumed
	}, nil
}

// serveProbes answers at --probes until stop is called.
func (s *serveCommand) serveProbes(server *serve.Server, log func(string)) (stop func(), err error) {
	if s.probesAt == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", s.probesAt)
	if err != nil {
		return nil, fmt.Errorf("--probes: %w", err)
	}
	probes := &connections{Listener: listener, most: mostProbes, limit: "the limit of that port", log: func(text string) { log("--probes: " + text) }}
	over := probes.server(server.Probes())
	go over.Serve(probes)
	fmt.Fprintf(s.stderr, "redlock: answers probes at %v\n", listener.Addr())
	return func() { over.Close() }, nil
}

const (
	mostProbes = 64 // connections to --probes

	// Descriptors that clients cannot use: for files, sockets and pipes of this process, and for
	// each Redis server. A server has several connections while it fails over or the page is open.
	keptFiles  = 32
	keptServer = 4
)

// fitConnections lowers --max-connections to the descriptors of this process, with a message. Otherwise clients
// could use up the descriptors for the Redis servers and for --state.
func (s *serveCommand) fitConnections(sets []serverSet, most int) error {
	kept := keptFiles
	for _, set := range sets {
		kept += keptServer * len(set.urls)
	}
	if s.probesAt != "" {
		kept += mostProbes
	}
	switch {
	case most == 0: // not known
	case most <= kept:
		return configErrorf("this process may open %d files (ulimit -n), and needs %d for the Redis servers and itself, and one for each client: raise the limit", most, kept)
	case most-kept < s.maxConnections:
		fmt.Fprintf(s.stderr, "redlock: --max-connections is %d, not %d: this process may open %d files (ulimit -n), and keeps %d for the Redis servers and itself\n",
			most-kept, s.maxConnections, most, kept)
		s.maxConnections = most - kept
	}
	return nil
}
