//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// serveView starts a run with the page.
func serveView(t *testing.T, f fleet.Fleet, ui string) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // a socket's path must be short
	tr.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return startServe(t, f, "--listen", "unix:"+filepath.Join(dir, "s"), ui)
}

// told sends a request, reads the answer, and returns its status.
func (s *served) told(method, path, body string, into any) int {
	s.t.Helper()
	a := s.ask(method, path, body)
	if into != nil {
		tr.NoError(s.t, json.Unmarshal([]byte(a.body), into), a.body)
	}
	return a.status
}

// look returns the locks, by name and permit, and the servers.
func (s *served) look() (map[string]survey.LockState, []survey.ServerState) {
	s.t.Helper()
	var seen survey.Survey
	tr.Equal(s.t, http.StatusOK, s.told("GET", "/v1/survey?count=1000", "", &seen))
	locks := map[string]survey.LockState{}
	for _, l := range seen.Locks {
		if l.Permit != nil {
			l.Name += fmt.Sprintf("/%d", *l.Permit)
		}
		locks[l.Name] = l
	}
	return locks, seen.Servers
}

func TestPageShowsTheContentsOfServers(t *testing.T) {
	t.Parallel()
	f := five(t)
	fenced := holdQuorum(t, f, "fenced", redlock.Fenced(), redlock.Owner("web-3"))
	holdReader(t, f, "shared")
	holdQuorum(t, f, "permits", redlock.Permits(3), redlock.Weight(2))
	put(t, f.URLs()[:2], "partial", "v")
	for _, u := range f.URLs()[:3] {
		ask(t, u, "SET", "stuck", "v")
		ask(t, u, "LPUSH", "list", "v")
	}
	v := serveView(t, f, "--ui")

	locks, servers := v.look()
	tr.Len(t, servers, 5)
	for _, s := range servers {
		assert.Empty(t, s.Error)
		assert.NotEmpty(t, s.Health)
		tr.NotNil(t, s.Timing)
		assert.Positive(t, s.Timing.Trip)
		assert.Positive(t, s.Timing.Within)
		for _, check := range []string{"latency", "clock"} {
			assert.True(t, slices.ContainsFunc(s.Findings, func(f doctor.Finding) bool { return f.Check == check }), "%s: %s", s.Server, check)
		}
	}
	assert.Equal(t, "web-3", locks["fenced"].Owner)
	assert.Equal(t, fenced.Value()[:12], locks["fenced"].Holder)
	assert.Equal(t, fenced.Fence(), locks["fenced"].Fence)
	assert.Positive(t, *locks["fenced"].Left)
	assert.Equal(t, "shared", locks["shared"].Kind)
	assert.Equal(t, 1, locks["shared"].Readers.Count)
	assert.Equal(t, "partial", locks["partial"].State)
	assert.Equal(t, "stuck", locks["stuck"].State)
	assert.NotContains(t, locks, "list")
	permits := 0
	for _, l := range locks {
		if l.Kind == "permits" {
			permits++
		}
	}
	assert.Equal(t, 2, permits)

	// Waiters are shown in the order of their arrival.
	tickets := []string{}
	for i := range 3 {
		go client(t, f).Acquire(t.Context(), "fenced", redlock.Fair(), redlock.Fenced())
		// A waiter that the machine did not run for a second has lost its ticket, and gets it back
		// when it asks again.
		var ids []string
		eventually(t, "another waits, behind those before", func() bool {
			locks, _ := v.look()
			now := locks["fenced"].Waiters
			ids = ids[:0]
			for _, m := range now.First {
				assert.Positive(t, m.Left)
				ids = append(ids, m.ID)
			}
			return now.Count == i+1 && len(ids) == i+1 && slices.Equal(tickets, ids[:i])
		})
		tickets = slices.Clone(ids)
	}
	v.signal(t, syscall.SIGTERM)
	assert.Zero(t, v.code(t))
}
