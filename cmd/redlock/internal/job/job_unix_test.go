//go:build unix

package job

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// Tests of jobs are not parallel, because a Job waits for all children of this process. Other tests
// of jobs are in cmd/redlock, where the caller is a separate process.

// endless is the time after which a test gives up.
const endless = 30 * time.Second

// shell returns a command that is a shell script. It has a long time to end after SIGTERM, because
// this machine may be busy.
func shell(script string) Command {
	return Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, KillAfter: endless, Margin: 2 * time.Second}
}

func newJob(t *testing.T, c Command) *Job {
	t.Helper()
	j, err := New(c)
	require.NoError(t, err)
	t.Cleanup(j.Close)
	return j
}

func TestResultHasTheExitCodeOfAShell(t *testing.T) {
	lock, _ := held(t, time.Minute)
	for script, code := range map[string]int{
		"exit 0":        0,
		"exit 7":        7,
		"exit 255":      255,
		"kill -TERM $$": 143,
		"kill -KILL $$": 137,
	} {
		r, err := newJob(t, shell(script)).Run(lock, nil)
		require.NoError(t, err, script)
		assert.Equal(t, Result{Code: code, Swept: true}, r, script)
	}
}

func TestErrorNamesACommandWithoutAProgram(t *testing.T) {
	lock, _ := held(t, time.Minute)
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o644))
	for path, why := range map[string]error{"/does/not/exist": fs.ErrNotExist, plain: fs.ErrPermission} {
		c := shell("")
		c.Path = path
		r, err := newJob(t, c).Run(lock, nil)
		var start *fs.PathError
		require.ErrorAs(t, err, &start)
		assert.Equal(t, path, start.Path)
		assert.ErrorIs(t, err, why)
		assert.Equal(t, Result{Swept: true}, r)
	}
}

func TestNoCommandStartsWithoutTimeToEndIt(t *testing.T) {
	lock, _ := held(t, time.Minute)
	file := filepath.Join(t.TempDir(), "started")
	c := shell("echo >" + file)
	c.Margin = time.Minute
	r, err := newJob(t, c).Run(lock, nil)
	assert.ErrorIs(t, err, redlock.ErrLost)
	assert.Equal(t, Result{Swept: true}, r)
	assert.NoFileExists(t, file)
}

func TestSignalBeforeTheCommandEndsTheJob(t *testing.T) {
	lock, _ := held(t, time.Minute)
	file := filepath.Join(t.TempDir(), "started")
	j := newJob(t, shell("echo >"+file))
	j.signals <- syscall.SIGTERM
	r, err := j.Run(lock, nil)
	assert.Equal(t, SignalError{syscall.SIGTERM}, err)
	assert.Equal(t, Result{Swept: true}, r)
	assert.NoFileExists(t, file)
}

// The command ends while the lock is still held, whether it obeys SIGTERM or not.
func TestCommandEndsBeforeItsUnrenewedLock(t *testing.T) {
	for script, want := range map[string]struct {
		code      int
		killAfter time.Duration // long for a command that obeys, because this machine may be busy
	}{
		`exec 2>/dev/null; trap "exit 3" TERM; while :; do sleep 0.01; done`: {3, endless},
		`exec 2>/dev/null; trap "" TERM; while :; do sleep 0.01; done`:       {SignalCode(syscall.SIGKILL), 4 * time.Second},
	} {
		c := shell(script)
		c.KillAfter, c.Margin = want.killAfter, endless
		lock, _ := held(t, c.KillAfter+c.Margin+6*time.Second) // time for the script to start
		r, err := newJob(t, c).Run(lock, os.Environ())
		assert.True(t, lock.Valid(), script)
		require.NoError(t, err, script)
		assert.Equal(t, want.code, r.Code, script)
		assert.True(t, r.Swept, script)
		assert.ErrorIs(t, r.Lost, redlock.ErrLost, script)
	}
}

func TestLossEndsTheCommand(t *testing.T) {
	lock, lose := held(t, time.Hour)
	file := filepath.Join(t.TempDir(), "started")
	c := shell(`exec 2>/dev/null; trap "exit 3" TERM; echo >` + file + `; while :; do sleep 0.01; done`)
	j := newJob(t, c)
	lost := make(chan bool)
	go func() {
		defer close(lost)
		for late := time.Now().Add(endless); time.Now().Before(late); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(file); err == nil {
				break
			}
		}
		lose()
	}()
	r, err := j.Run(lock, os.Environ())
	<-lost
	require.NoError(t, err)
	assert.Equal(t, 3, r.Code)
	assert.ErrorIs(t, r.Lost, redlock.ErrLost)
}

func TestLingeringEndsWithTheTimeTheLockOrASignal(t *testing.T) {
	lock, lose := held(t, time.Hour)
	j := newJob(t, shell(""))
	assert.True(t, j.Linger(lock, 0))
	j.signals <- syscall.SIGUSR1 // ends nothing
	j.signals <- syscall.SIGINT
	assert.True(t, j.Linger(lock, time.Hour))
	assert.Empty(t, j.signals)

	lose()
	assert.False(t, newJob(t, shell("")).Linger(lock, time.Hour))
}

func TestWardenRefusesToRunForPeople(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := exec.Command(self, wardenArg).CombinedOutput()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	assert.Equal(t, 64, exit.ExitCode())
	assert.Contains(t, string(out), "for redlock's own use")
}
