package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve"
	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
)

const serveHelp = `Serves locks over HTTP to long-running programs in any language: web workers, services. Run one
for each machine, or one for each program.

A client makes a session, takes locks in it, and asks for its state at any time. Each answer has
the time for which its locks are good, counted from the sending of the request; redlock renews
them. If a session sends no request for its TTL, its locks are released.

It listens at the socket that systemd passes, otherwise at --listen or $REDLOCK_LISTEN, otherwise at
/run/redlock.sock. A TCP address that other machines reach needs TLS, and --tokens, --token-file
or --client-ca. With --tokens each client has the rights of its entry in that file; docs/SERVE.md
has an example.

On SIGTERM it grants no more locks, notifies its clients, and waits for at most --stop-within until
they have released theirs. With --state it ends at once and writes sessions and locks to that
file, and the next redlock serve takes them over. The file is a secret.

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
	listen                                 string
	socketMode                             string
	tokenFile                              string
	rightsFile                             string
	cert, key                              string
	clientCA                               string
	ttl, grace                             time.Duration
	state                                  string
	page                                   bool
	office                                 string
	candidate                              string // for the office
	probesAt                               string
	hosts                                  []string
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
	s.livesOn = true
	f := c.Flags()
	s.embeddedFlag()
	f.StringVar(&s.listen, "listen", "unix:/run/redlock.sock", "`ADDRESS` to listen at: unix:PATH or HOST:PORT")
	f.StringArrayVar(&s.hosts, "allow-host", nil, "`NAME`, other than localhost, by which clients may reach a loopback address; repeat the flag for more")
	f.StringVar(&s.socketMode, "socket-mode", "0600", "who may use the socket, as for chmod(1)")
	f.StringVar(&s.tokenFile, "token-file", "", "`FILE` with tokens, one a line; each request must carry one of them")
	f.StringVar(&s.rightsFile, "tokens", "", "`FILE` of clients: the SHA-256 of their tokens, or certificates, and their rights")
	f.StringVar(&s.cert, "cert", "", "`FILE` of the certificate for TLS with the clients")
	f.StringVar(&s.key, "key", "", "`FILE` of its key")
	f.StringVar(&s.clientCA, "client-ca", "", "`FILE` of the authorities that sign the certificates of clients")
	f.DurationVar(&s.ttl, "ttl", 10*time.Second, "default TTL of locks and sessions; between 1s and 1h")
	f.DurationVar(&s.grace, "stop-within", 10*time.Second, "how long clients have to release their locks when redlock ends")
	f.StringVar(&s.state, "state", "", "`FILE` in which sessions and locks outlive a restart that takes less than their TTL")
	f.IntVar(&s.maxSessions, "max-sessions", 10_000, "limit of sessions")
	f.IntVar(&s.maxLeases, "max-leases", 1_000, "limit of locks in one session")
	f.IntVar(&s.maxConnections, "max-connections", 10_000, "limit of connections; lowered if this process may not open that many files")
	f.BoolVar(&s.page, "ui", false, "serve a page that shows locks and servers, at /ui")
	f.StringVar(&s.office, "office", "", "campaign for the office `NAME`; GET /leader reports whether this candidate leads")
	f.StringVar(&s.candidate, "candidate", "", "`ID` of this candidate, for people; at most 128 bytes (default: the name of the machine)")
	f.StringVar(&s.probesAt, "probes", "", "`HOST:PORT` to answer /healthz, /readyz and /leader at, with a status only, and /metrics")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return s.run(c.Context())
	}
	return c
}

func (s *serveCommand) check() error {
	switch {
	case s.ttl < time.Second || s.ttl > time.Hour:
		return wrong(s.flags, "ttl", "must be between 1s and 1h")
	case s.maxTTL != 0 && s.maxTTL < s.ttl:
		return wrong(s.flags, "max-ttl", "must be at least --ttl, %v", s.ttl)
	case s.nodeTimeout >= s.ttl:
		return wrong(s.flags, "node-timeout", "must be below --ttl, %v", s.ttl)
	case s.grace < 0:
		return wrong(s.flags, "stop-within", "must not be negative")
	case s.maxSessions < 1 || s.maxLeases < 1 || s.maxConnections < 1:
		return usageErrorf("--max-sessions, --max-leases and --max-connections must be at least 1")
	case (s.cert == "") != (s.key == ""):
		return usageErrorf("--cert and --key belong together: pass both")
	case s.tokenFile != "" && s.rightsFile != "":
		return usageErrorf("--token-file and --tokens exclude each other: --tokens has the tokens of all clients")
	case s.clientCA != "" && s.cert == "":
		return usageErrorf("--client-ca needs --cert and --key: clients send certificates over TLS only")
	case slices.ContainsFunc(s.hosts, func(name string) bool { return name == "" || strings.ContainsAny(name, "/*: ") }):
		return wrong(s.flags, "allow-host", "must be a name without a port, such as host.docker.internal")
	case s.candidate != "" && s.office == "":
		return usageErrorf("--candidate needs --office: it names the candidate for that office")
	}
	if _, _, err := net.SplitHostPort(s.probesAt); s.probesAt != "" && err != nil {
		return wrong(s.flags, "probes", "%q: must be HOST:PORT, or :PORT for all addresses", s.probesAt)
	}
	if s.office != "" {
		return s.checkName(s.office)
	}
	return nil
}

// run serves until ctx ends.
func (s *serveCommand) run(ctx context.Context) error {
	reread.ReapOrphans()
	// A log whose reader has gone away must not end this process, which has the locks of others.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	d, err := s.door()
	if err != nil {
		return err
	}
	defer d.listener.Close()
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
		Office: s.office, Candidate: cmp.Or(s.candidate, host, "unknown"), TTL: s.ttl, Limits: serve.Limits{Sessions: s.maxSessions, Leases: s.maxLeases}, Rights: d.rights, IsLoopback: d.isLoopback, Hosts: s.hosts,
		Metrics: measure.NewExporter(), Files: func() (open, most int) { return openFiles(), descriptors() },
		Log: func(text string) { fmt.Fprintf(s.stderr, "redlock: %s\n", plain.OneLine(text)) },
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
	} // which would release locks: they are kept when this process has ended
	return err
}

// serveLocks serves until ctx ends. It reports whether locks are kept when this process has ended.
func (s *serveCommand) serveLocks(ctx context.Context, locker *redlock.Locker, config serve.Config, address string, clients *connections) (kept bool, err error) {
	if err := locker.Check(redlock.Owner(config.Candidate)); err != nil {
		return false, wrong(s.flags, "candidate", "%s", ofOption.ReplaceAllString(err.Error(), ""))
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
	fmt.Fprintf(s.stderr, "redlock: serving at %s\n", address) // who reads it can connect: the socket listens
	return s.serve(ctx, clients, server, finish)
}

// A door is where clients come in, and who may.
type door struct {
	listener   net.Listener
	address    string       // as clients give it
	rights     serve.Rights // nil: anybody may do all
	isLoopback bool
}

// door opens it, unless those come in who may not.
func (s *serveCommand) door() (d door, err error) {
	if d.rights, err = s.rights(); err != nil {
		return d, err
	}
	secure, err := s.tlsConfig()
	if err != nil {
		return d, err
	}
	if d.listener, err = s.listener(); err != nil {
		return d, err
	}
	at := d.listener.Addr()
	reached, err := netip.ParseAddrPort(at.String())
	d.isLoopback = err == nil && reached.Addr().IsLoopback()
	switch {
	case at.Network() == "unix":
		d.address = "unix:" + at.String()
	case !d.isLoopback && (secure == nil || d.rights == nil && s.clientCA == ""):
		d.listener.Close()
		return d, wrong(s.flags, "listen", "%v can be reached from other machines: pass --cert and --key, and --tokens, --token-file or --client-ca", at)
	case secure != nil:
		d.address = "https://" + at.String()
	default:
		d.address = "http://" + at.String()
	}
	if secure != nil {
		d.listener = tls.NewListener(d.listener, secure)
	}
	return d, nil
}

// serve serves until ctx ends, and then has finish end what is resumed, and lets the clients end. It reports
// whether locks are kept, to expire or for the next redlock serve.
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
		err := s.leave(server)
		if err == nil {
			over.Close() // who can listen now, finds the file
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

// leave writes the state that the next redlock serve resumes. Before the file is there, this process
// disconnects from the servers: if it is stopped for longer than a TTL, its locks are over for it, and it
// would release them on the servers, by the values that the next redlock serve has adopted.
//
// If the file cannot be written the server stays, to be closed as without --state.
func (s *serveCommand) leave(server *serve.Server) error {
	text, err := json.Marshal(server.Leave())
	if err == nil {
		err = writeSecret(s.state, text, s.servers.disconnect)
	}
	if err != nil {
		server.Stay()
	}
	return err
}

// writeSecret writes a file that only we can read, whole or not at all. It calls before when the file is
// complete, and not there under its name yet.
func writeSecret(path string, text []byte, before func()) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // which is 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		before()
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// resume begins to go on with what the last redlock serve has left. finish ends that: what is not adopted by then
// can be left again.
func (s *serveCommand) resume(ctx context.Context, server *serve.Server) (finish func(), err error) {
	left, err := s.takeState()
	if err != nil || s.state == "" {
		return func() {}, err
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

// takeState returns what the last redlock serve has left to go on with, which may be nothing. A file that cannot be read
// stays.
func (s *serveCommand) takeState() (left serve.State, err error) {
	if s.state == "" {
		return left, nil
	}
	if _, err = firstRead(func() (serve.State, error) { return readState(s.state) }); err == nil {
		left, err = s.claimState()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return left, wrong(s.flags, "state", "%w: remove the file, unless an older redlock serve wrote it", err)
	}
	if err := s.tryState(); err != nil {
		return left, wrong(s.flags, "state", "cannot be written, so no lock would outlive a restart: %w", err)
	}
	return left, nil
}

// claimState gives the file another name before it reads it. So of several that have found the file one goes on with it,
// and with what is there by then.
func (s *serveCommand) claimState() (left serve.State, err error) {
	f, err := os.CreateTemp(filepath.Dir(s.state), filepath.Base(s.state)+".*")
	if err != nil {
		return left, err
	}
	f.Close()
	if err := os.Rename(s.state, f.Name()); err != nil {
		os.Remove(f.Name())
		return left, err
	}
	if left, err = readState(f.Name()); err != nil {
		return left, cmp.Or(os.Rename(f.Name(), s.state), err)
	}
	return left, os.Remove(f.Name())
}

// readState reads a file of leave. An empty one has no sessions.
func readState(path string) (left serve.State, err error) {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return left, err
	}
	if err = json.Unmarshal(text, &left); err == nil {
		err = left.Check()
	}
	if err != nil {
		err = fmt.Errorf("%s is not a state that this redlock serve can read: %w", path, err)
	}
	return left, err
}

// tryState returns why leave could not write a file there, or nil. It leaves the path itself alone, where
// another redlock serve may be writing its state.
func (s *serveCommand) tryState() error {
	f, err := os.CreateTemp(filepath.Dir(s.state), filepath.Base(s.state)+".*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// rights reads what clients may do: the file of --tokens, or the tokens of --token-file, one a line. Of
// two one is that of before: a client whose token is refused cannot keep its locks.
func (s *serveCommand) rights() (serve.Rights, error) {
	if s.rightsFile != "" {
		return readFlag(s.servers, "tokens", func(texts ...[]byte) (rights.Table, error) { return rights.Parse(texts[0]) }, s.rightsFile)
	}
	if s.tokenFile == "" {
		return nil, nil
	}
	return readFlag(s.servers, "token-file", func(texts ...[]byte) (rights.Table, error) {
		var tokens []string
		for i, line := range strings.Split(strings.TrimSpace(string(texts[0])), "\n") {
			if line = strings.TrimSpace(line); len(line) < rights.LeastToken {
				return nil, fmt.Errorf("line %d: a token must have at least %d characters: make one with head -c 32 /dev/urandom | base64", i+1, rights.LeastToken)
			}
			tokens = append(tokens, line)
		}
		return rights.All(tokens...), nil
	}, s.tokenFile)
}

// tlsConfig returns that for the clients, or nil.
func (s *serveCommand) tlsConfig() (*tls.Config, error) {
	if s.cert == "" {
		return nil, nil
	}
	pair, err := s.keyPair("cert", s.cert, s.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{NextProtos: []string{"http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		current := pair.Current()
		return &current, nil
	}}
	if s.clientCA == "" {
		return c, nil
	}
	authorities, err := s.authorities("client-ca", s.clientCA)
	if err != nil {
		return nil, err
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.SessionTicketsDisabled = true // by which clients come in again whose authority has been taken out
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := c.Clone()
		current.ClientCAs = authorities.Current()
		return current, nil
	}
	return c, nil
}

// listener returns that of systemd, if it passes one on, or of --listen.
func (s *serveCommand) listener() (net.Listener, error) {
	passed, err := activation.Listeners()
	switch {
	case err != nil:
		return nil, configErrorf("the sockets of systemd (ListenStream=): %w", err)
	case len(passed) > 1:
		return nil, configErrorf("systemd passes %d sockets: configure one ListenStream=", len(passed))
	case len(passed) == 1 && (passed[0] == nil || !slices.Contains([]string{"unix", "tcp"}, passed[0].Addr().Network())):
		return nil, configErrorf("the socket of systemd does not listen for streams: use ListenStream=")
	case len(passed) == 1:
		return passed[0], nil
	}
	path, isUnix := strings.CutPrefix(s.listen, "unix:")
	if !isUnix {
		_, port, err := net.SplitHostPort(s.listen)
		if _, notPort := strconv.ParseUint(port, 10, 16); err != nil || notPort != nil {
			return nil, wrong(s.flags, "listen", "%q must be unix:PATH or HOST:PORT, with a port of at most 65535", s.listen)
		}
		l, err := net.Listen("tcp", s.listen)
		if err != nil {
			return nil, s.cannotListen(err)
		}
		return l, nil
	}
	if path == "" || len(path) > longestPath {
		return nil, wrong(s.flags, "listen", "%q must be unix:PATH, with a path of at most %d bytes", s.listen, longestPath)
	}
	mode, err := strconv.ParseUint(s.socketMode, 8, 9)
	if err != nil {
		return nil, wrong(s.flags, "socket-mode", "%q must be octal, such as 0660", s.socketMode)
	}
	l, err := listenUnix(path)
	if err != nil {
		return nil, s.cannotListen(err)
	}
	if err := os.Chmod(path, fs.FileMode(mode)); err != nil {
		l.Close()
		return nil, fmt.Errorf("--socket-mode: %w", err)
	}
	return l, nil
}

// longestPath is that of a socket: 103 bytes on macOS and the BSDs, and a few more on Linux.
const longestPath = 103

// cannotListen returns the error of an address that is right, and cannot be had.
func (s *serveCommand) cannotListen(err error) error {
	return &exitError{code: exitFailed, err: wrong(s.flags, "listen", "%w", err)}
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
