//go:build unix

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// TestServeIsRestarted: clients go on with their sessions and locks, and nobody else had these meanwhile.
func TestServeIsRestarted(t *testing.T) {
	t.Parallel()
	f := five(t)
	file := filepath.Join(t.TempDir(), "state")
	flags := []string{"--listen", "127.0.0.1:0", "--state", file, "--ttl", "30s"}
	s := startServe(t, f, flags...)
	var leases []string
	for _, body := range []string{
		`{"name":"a","fenced":true,"owner":"web-3"}`, `{"name":"r","kind":"shared"}`, `{"name":"p","permits":3}`, `{"names":["x","y"]}`,
	} {
		a := s.ask("POST", "/v1/locks", body)
		tr.Equal(t, http.StatusCreated, a.status, a.body)
		leases = append(leases, a.Lease)
	}
	other := client(t, f)
	isHeld := func(name string, opts ...redlock.Option) {
		t.Helper()
		_, err := other.TryAcquire(t.Context(), name, opts...)
		assert.ErrorIs(t, err, redlock.ErrHeld, name)
	}
	tr.Zero(t, s.stop(), s.stderr.String())
	written, err := os.Stat(file)
	tr.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), written.Mode().Perm())
	isHeld("a")
	isHeld("r")

	s = startServe(t, f, flags...)
	_, err = os.Stat(file)
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.Contains(t, s.stderr.String(), "goes on with 3 locks of the last redlock serve; 1 were lost")
	for i, lease := range leases {
		a := s.ask("GET", "/v1/locks/"+lease, "")
		tr.Equal(t, http.StatusOK, a.status, a.body)
		if i == 3 {
			assert.Contains(t, a.body, "does not outlive")
			assert.Equal(t, http.StatusGone, s.ask("DELETE", "/v1/locks/"+lease, "").status)
			continue
		}
		assert.Contains(t, a.body, `"held":true`)
	}
	assert.Contains(t, s.ask("GET", "/v1/locks/"+leases[0], "").body, `"fence":`)
	isHeld("a")
	isHeld("r")
	for _, lease := range leases[:3] {
		tr.Equal(t, http.StatusNoContent, s.ask("DELETE", "/v1/locks/"+lease, "").status)
	}
	free(t, other, "a")
	free(t, other, "r")
}

// TestServeThatIsKilledLeavesNothing to go on with: its locks expire, and its clients are told.
func TestServeThatIsKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	f := five(t)
	flags := []string{"--listen", "127.0.0.1:0", "--state", filepath.Join(t.TempDir(), "state"), "--ttl", "3s"}
	s := startServe(t, f, flags...)
	lease := s.take("a").Lease
	s.signal(t, syscall.SIGKILL)
	s.Wait()
	s = startServe(t, f, flags...)
	assert.Equal(t, http.StatusNotFound, s.ask("GET", "/v1/locks/"+lease, "").status)
	other := client(t, f)
	lock, err := other.Acquire(t.Context(), "a", redlock.Patience(time.Minute))
	tr.NoError(t, err)
	tr.NoError(t, lock.Release(t.Context()))
}

// TestServeRefusesAStateThatItCannotRead, and leaves the file where it is.
func TestServeRefusesAStateThatItCannotRead(t *testing.T) {
	t.Parallel()
	f := five(t)
	for text, why := range map[string]string{
		`{"version":2,"sessions":[]}`: "it is of version 2, and this redlock reads version 1; remove it if",
		`{"sessions":[]}`:             "it is of version 0, and",
		`sessions: none`:              "invalid character 's'",
		`{"version":1,"sessions":[{"id":"s","leases":[{"id":"l"}]}]}`: "a lease in it is not complete; remove it if",
	} {
		file := filepath.Join(t.TempDir(), "state")
		tr.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		code, _, stderr := command(t, f.URLs(), "serve", "--listen", "127.0.0.1:0", "--state", file).outcome(t)
		assert.Equal(t, 64, code, text)
		assert.Contains(t, stderr, "redlock: --state: "+why)
		left, err := os.ReadFile(file)
		tr.NoError(t, err)
		assert.Equal(t, text, string(left))
	}
}
