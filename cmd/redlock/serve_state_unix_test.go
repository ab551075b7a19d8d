//go:build unix

package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"
)

// TestServeIsRestarted: clients keep their sessions and locks, and no other client got the locks in
// between.
func TestServeIsRestarted(t *testing.T) {
	t.Parallel()
	f := five(t)
	file := filepath.Join(t.TempDir(), "state")
	flags := []string{"--listen", "127.0.0.1:0", "--state", file, "--ttl", "1m"}
	s := startServe(t, f, flags...)
	var leases []string
	for _, body := range []string{`{"name":"a","fenced":true,"owner":"web-3"}`, `{"name":"r","kind":"shared"}`, `{"names":["x","y"]}`} {
		a := s.ask("POST", "/v1/locks", body)
		tr.Equal(t, http.StatusCreated, a.status, a.body)
		leases = append(leases, a.Lease)
	}
	tr.Zero(t, s.stop(), s.stderr.String())
	written, err := os.Stat(file)
	tr.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), written.Mode().Perm())
	other := client(t, f)
	_, err = other.TryAcquire(t.Context(), "a")
	assert.ErrorIs(t, err, redlock.ErrHeld)

	s = startServe(t, f, flags...)
	assert.NoFileExists(t, file)
	s.says(`took over 2 locks of the last redlock serve; 1 were lost`)
	assert.Contains(t, s.ask("GET", "/v1/locks/"+leases[2], "").body, "does not survive")
	for i, name := range []string{"a", "r"} {
		assert.Contains(t, s.ask("GET", "/v1/locks/"+leases[i], "").body, `"held":true`)
		_, err = other.TryAcquire(t.Context(), name)
		assert.ErrorIs(t, err, redlock.ErrHeld)
		tr.Equal(t, http.StatusNoContent, s.ask("DELETE", "/v1/locks/"+leases[i], "").status)
		free(t, other, name)
	}
}

// TestKilledServeLeavesNoState: its locks expire, and its clients get an error.
func TestKilledServeLeavesNoState(t *testing.T) {
	t.Parallel()
	f := five(t)
	flags := []string{"--listen", "127.0.0.1:0", "--state", filepath.Join(t.TempDir(), "state"), "--ttl", "10s"}
	s := startServe(t, f, flags...)
	lease := s.take("a").Lease
	s.signal(t, syscall.SIGKILL)
	s.Wait()
	s = startServe(t, f, flags...)
	assert.Equal(t, http.StatusNotFound, s.ask("GET", "/v1/locks/"+lease, "").status)
	_, err := client(t, f).Acquire(t.Context(), "a", redlock.Patience(time.Minute))
	assert.NoError(t, err)
}

// TestServeRefusesAnUnreadableState: the file stays in place.
func TestServeRefusesAnUnreadableState(t *testing.T) {
	t.Parallel()
	f := five(t)
	for text, why := range map[string]string{
		`{"version":2,"sessions":[]}`: "the state has version 2, and this redlock reads version 1: remove the file, unless",
		`sessions: none`:              "invalid character 's'",
	} {
		file := filepath.Join(t.TempDir(), "state")
		tr.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		code, _, stderr := command(t, f.URLs(), "serve", "--listen", "127.0.0.1:0", "--state", file).outcome(t)
		assert.Equal(t, 64, code, text)
		assert.Contains(t, stderr, "redlock: --state: "+file+" is not a state that this redlock serve can read: "+why)
		left, err := os.ReadFile(file)
		tr.NoError(t, err)
		assert.Equal(t, text, string(left))
	}
}

// TestServeDisconnectsBeforeItWritesItsState: otherwise, after a later stop of longer than a TTL,
// it would release the locks that the next process has adopted.
func TestServeDisconnectsBeforeItWritesItsState(t *testing.T) {
	t.Parallel()
	f := five(t)
	file := filepath.Join(t.TempDir(), "state")
	c := &cobra.Command{}
	s := &serveCommand{servers: serverFlags(c), state: stateFile(file)}
	s.flags, s.reach.timeout, s.locking.nodeTimeout = c.Flags(), longEnough, longEnough
	locker, err := s.servers.open([]serverSet{{urls: f.URLs()}}, redlock.MemoryGuard(false), redlock.TTL(endless))
	tr.NoError(t, err)
	defer locker.Close()
	lock, err := locker.Acquire(t.Context(), "a")
	tr.NoError(t, err)
	tr.NoError(t, s.leave(serve.New(locker, serve.Config{TTL: endless}), s.state.write))
	assert.FileExists(t, file)
	assert.ErrorIs(t, lock.Release(t.Context()), redlock.ErrNoQuorum)
	_, err = client(t, f).TryAcquire(t.Context(), "a")
	assert.ErrorIs(t, err, redlock.ErrHeld)

	file = filepath.Join(t.TempDir(), "another")
	tr.NoError(t, stateFile(file).write(serve.State{}, func() error { assert.NoFileExists(t, file); return nil }))
	assert.FileExists(t, file)
}

// TestHangingDiskKeepsNoLock: after ten seconds the server stays, and releases its locks when its
// clients have ended. A disk that answers later must not let another server adopt the locks.
func TestHangingDiskKeepsNoLock(t *testing.T) {
	t.Parallel()
	file := stateFile(filepath.Join(t.TempDir(), "state"))
	synctest.Test(t, func(t *testing.T) {
		server := serve.New(redlocktest.Start(t).Locker(), serve.Config{TTL: 10 * time.Second})
		began, late := time.Now(), make(chan error)
		err := (&serveCommand{servers: &servers{}}).leave(server, func(state serve.State, before func() error) error {
			time.Sleep(time.Minute)
			err := file.write(state, before)
			late <- err
			return err
		})
		assert.ErrorContains(t, err, "the disk did not answer within 10s")
		assert.Less(t, time.Since(began), 11*time.Second)
		server.Close(t.Context())
		assert.ErrorContains(t, <-late, "it was too late")
	})
	others, err := os.ReadDir(filepath.Dir(string(file)))
	tr.NoError(t, err)
	assert.Empty(t, others)
}

// TestServeChecksItsStateFileAtTheStart: an error at the end would be too late.
func TestServeChecksItsStateFileAtTheStart(t *testing.T) {
	t.Parallel()
	f := five(t)
	missing := filepath.Join(t.TempDir(), "no", "state")
	code, _, stderr := command(t, f.URLs(), "serve", "--listen", "127.0.0.1:0", "--state", missing).outcome(t)
	assert.Equal(t, 64, code)
	assert.Contains(t, stderr, "redlock: --state: cannot be written")

	empty := filepath.Join(t.TempDir(), "state")
	tr.NoError(t, os.WriteFile(empty, nil, 0o600))
	s := startServe(t, f, "--listen", "127.0.0.1:0", "--state", empty)
	assert.NoFileExists(t, empty)
	tr.Zero(t, s.stop(), s.stderr.String())
	assert.FileExists(t, empty)
}

// TestServeReleasesItsLocksWithoutAState: without a file no process takes the locks over. Serve
// notifies its clients first.
func TestServeReleasesItsLocksWithoutAState(t *testing.T) {
	t.Parallel()
	f := five(t)
	folder := filepath.Join(t.TempDir(), "folder")
	tr.NoError(t, os.Mkdir(folder, 0o700))
	s := startServe(t, f, "--listen", "127.0.0.1:0", "--state", filepath.Join(folder, "state"), "--ttl", "1h", "--stop-within", "1h")
	lease := s.take("a")
	tr.NoError(t, os.Remove(folder))
	s.signal(t, syscall.SIGTERM)
	s.says(`--state could not be written, so the next redlock serve takes over nothing: .*no such file.*1h0m0s to release`)
	s.headers = map[string]string{"Redlock-Session": lease.Session}
	assert.True(t, s.ask("GET", "/v1/session", "").Ending)
	assert.Equal(t, http.StatusNoContent, s.ask("DELETE", "/v1/locks/"+lease.Lease, "").status)
	assert.Equal(t, exitFailed, s.code(t))
	assert.Contains(t, s.stderr.String(), "redlock: --state: ")
	free(t, client(t, f), "a")
}

// TestServeAnswersWhileItResumes: a supervisor waits for its answer. The locks return when the
// servers answer.
func TestServeAnswersWhileItResumes(t *testing.T) {
	t.Parallel()
	f := five(t)
	flags := []string{"--listen", "127.0.0.1:0", "--state", filepath.Join(t.TempDir(), "state"), "--ttl", "1h", "--dial-timeout", "5s"}
	s := startServe(t, f, flags...)
	lease := "/v1/locks/" + s.take("a").Lease
	tr.Zero(t, s.stop(), s.stderr.String())
	for i := range 3 {
		tr.NoError(t, f.Pause(t.Context(), i))
	}
	s = startServe(t, f, flags...)
	assert.Equal(t, http.StatusOK, s.ask("GET", "/healthz", "").status)
	assert.Equal(t, http.StatusServiceUnavailable, s.ask("GET", "/readyz", "").status)
	refused := s.ask("POST", "/v1/locks", `{"name":"b"}`)
	assert.Equal(t, http.StatusServiceUnavailable, refused.status)
	assert.Contains(t, refused.body, `"kind":"no_quorum"`)
	tr.Zero(t, s.stop(), "one that is ended meanwhile leaves what it has not adopted")
	s = startServe(t, f, flags...)
	for i := range 3 {
		tr.NoError(t, f.Resume(t.Context(), i))
	}
	s.says(`took over 1 locks of the last redlock serve; 0 were lost`)
	assert.Contains(t, s.ask("GET", lease, "").body, `"held":true`)
	assert.Equal(t, http.StatusNoContent, s.ask("DELETE", lease, "").status)
}

// TestOneServeContinuesWithAState: if another process takes the file while the first one reads it,
// only one of them continues with the state, and may write the next one.
func TestOneServeContinuesWithAState(t *testing.T) {
	t.Parallel()
	state := func(id string) []byte { return []byte(`{"version":1,"sessions":[{"id":"` + id + `","leases":[]}]}`) }
	for name, row := range map[string]struct {
		meanwhile func(file string) error
		want      int
	}{
		"it is taken": {os.Remove, 0},
		"it is taken, and the next is there": {func(file string) error {
			return errors.Join(os.WriteFile(file+".next", state("next"), 0o600), os.Rename(file+".next", file))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "state")
			tr.NoError(t, syscall.Mkfifo(file, 0o600)) // read until its writer closes it
			done := make(chan error, 1)
			go func() {
				f, err := os.OpenFile(file, os.O_WRONLY, 0)
				if err == nil {
					_, err = f.Write(state("first"))
					done <- errors.Join(err, row.meanwhile(file), f.Close())
					return
				}
				done <- err
			}()
			left, err := stateFile(file).take()
			tr.NoError(t, err)
			tr.NoError(t, <-done)
			tr.Len(t, left.Sessions, row.want)
			if row.want > 0 {
				assert.Equal(t, "next", left.Sessions[0].ID)
			}
			others, err := os.ReadDir(filepath.Dir(file))
			tr.NoError(t, err)
			assert.Empty(t, others)
		})
	}
}
