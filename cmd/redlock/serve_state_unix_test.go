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
