package main

import (
	"cmp"
	"fmt"
	"net"
	"os"

	"github.com/redquorum/redquorum/internal/serve"
	"github.com/redquorum/redquorum/redlock"
)

// officeFlags adds the flags of a candidate, and of the port for those who look at it.
func (s *serveCommand) officeFlags() {
	s.flags.StringVar(&s.office, "office", "", "campaign for the office `NAME`; GET /leader says whether we lead")
	s.flags.StringVar(&s.candidate, "candidate", "", "our `ID` for those who look who leads; at most 128 bytes (default: the name of the machine)")
	s.flags.StringVar(&s.probesAt, "probes", "", "`HOST:PORT` to answer /healthz, /readyz and /leader at, with a status only")
}

// checkOffice refuses what contradicts itself.
func (s *serveCommand) checkOffice() error {
	if s.candidate != "" && s.office == "" {
		return usageErrorf("--candidate is who campaigns for --office; give that, too")
	}
	if s.probesAt != "" {
		if _, _, err := net.SplitHostPort(s.probesAt); err != nil {
			return wrong(s.flags, "probes", "%q: must be HOST:PORT, or :PORT for all addresses", s.probesAt)
		}
	}
	if s.office != "" {
		return s.checkName(s.office)
	}
	return nil
}

// candidacy completes a Config by the office.
func (s *serveCommand) candidacy(c serve.Config, locker *redlock.Locker) (serve.Config, error) {
	host, _ := os.Hostname()
	c.Office, c.Candidate = s.office, cmp.Or(s.candidate, host, "unknown")
	if err := locker.Check(redlock.Owner(c.Candidate)); err != nil {
		return c, wrong(s.flags, "candidate", "%s", ofOption.ReplaceAllString(err.Error(), ""))
	}
	return c, nil
}

// serveProbes answers at --probes until stop is called.
func (s *serveCommand) serveProbes(server *serve.Server) (stop func(), err error) {
	if s.probesAt == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", s.probesAt)
	if err != nil {
		return nil, fmt.Errorf("--probes: %w", err)
	}
	over := s.httpServer(server.Probes())
	go over.Serve(listener)
	fmt.Fprintf(s.stderr, "redlock: answers probes at %v\n", listener.Addr())
	return func() { over.Close() }, nil
}
