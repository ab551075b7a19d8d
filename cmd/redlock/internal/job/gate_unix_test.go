//go:build unix

package job

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock"
)

// A gated job has a process that waits at the gate. Its command would write a file.
type gated struct {
	*Job
	file string
}

func atTheGate(t *testing.T, lock heldLock) *gated {
	t.Helper()
	file := filepath.Join(t.TempDir(), "started")
	j := &gated{Job: newJob(t, shell("echo >"+file)), file: file}
	j.lease = newLease(lock, j.command, func(until clock.Instant) { j.warden.allow(until) })
	t.Cleanup(j.lease.stop)
	require.True(t, j.lease.renewed())
	require.NoError(t, j.start(nil))
	t.Cleanup(j.finish)
	return j
}

// code waits for the end of the gate, or of the command.
func (j *gated) code() int {
	for {
		if c := <-j.changes; c.ended {
			j.child = 0
			return c.code
		}
	}
}

// A pausedLock is a lock after a pause. The pause shortens its remaining time.
type pausedLock struct {
	heldLock
	pause time.Duration
}

func (l *pausedLock) Remaining() time.Duration { return l.heldLock.Remaining() - l.pause }

// TestPauseAfterTheForkStartsNoCommand: the first check of the lock was in time.
func TestPauseAfterTheForkStartsNoCommand(t *testing.T) {
	lock, _ := held(t, time.Hour)
	paused := &pausedLock{heldLock: lock}
	j := atTheGate(t, paused)
	paused.pause = lock.Remaining() - j.command.KillAfter - j.command.Margin
	j.lease.until = j.lease.until.Add(-paused.pause)
	assert.ErrorIs(t, j.admit(), redlock.ErrLost)
	j.abort()
	assert.NoFileExists(t, j.file)
}

// TestLossAfterTheForkStartsNoCommand: the deadline has not passed.
func TestLossAfterTheForkStartsNoCommand(t *testing.T) {
	lock, lose := held(t, time.Hour)
	j := atTheGate(t, lock)
	lose()
	assert.ErrorIs(t, j.admit(), redlock.ErrLost)
	j.abort()
	assert.NoFileExists(t, j.file)
}

// TestGateChecksTheDeadline: this process was paused after its second check.
func TestGateChecksTheDeadline(t *testing.T) {
	lock, _ := held(t, time.Hour)
	j := atTheGate(t, lock)
	j.open(MachineTime())
	assert.Equal(t, 1, j.code())
	assert.ErrorIs(t, j.refusal(), redlock.ErrLost)
	assert.NoFileExists(t, j.file)
}

// TestGateEndsWithItsConnection: the connection ends with the first process.
func TestGateEndsWithItsConnection(t *testing.T) {
	lock, _ := held(t, time.Hour)
	j := atTheGate(t, lock)
	require.NoError(t, unix.Shutdown(j.gate, unix.SHUT_WR))
	assert.Equal(t, 1, j.code())
	assert.NoFileExists(t, j.file)
}

// TestNoCommandStartsWithoutItsWarden: a process can still join the group of a dead warden.
func TestNoCommandStartsWithoutItsWarden(t *testing.T) {
	lock, _ := held(t, time.Hour)
	j := atTheGate(t, lock)
	require.NoError(t, unix.Kill(j.warden.group(), unix.SIGKILL))
	eventually(t, "its end is noticed", func() bool { return j.warden.ended() })
	assert.ErrorContains(t, j.admit(), "has ended")
	j.abort()
	assert.NoFileExists(t, j.file)
}

// TestDeadWardenIsReplacedBeforeTheCommandStarts: the warden died during the wait for the lock.
func TestDeadWardenIsReplacedBeforeTheCommandStarts(t *testing.T) {
	lock, _ := held(t, time.Hour)
	j := newJob(t, shell("exit 7"))
	dead := j.warden.group()
	require.NoError(t, unix.Kill(dead, unix.SIGKILL))
	eventually(t, "its end is noticed", func() bool { return j.warden.ended() })
	r, err := j.Run(lock, nil)
	require.NoError(t, err)
	assert.Equal(t, Result{Code: 7, Swept: true}, r)
	assert.NotEqual(t, dead, j.warden.group())
}

func TestGateRefusesToRunForPeople(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, args := range [][]string{nil, {"0"}, {"0", "/bin/true", "true"}, {"x", "/bin/true", "true"}} {
		p := exec.Command(self, append([]string{gateArg}, args...)...)
		out, _ := p.CombinedOutput() // the exit code is checked
		assert.Equal(t, 64, p.ProcessState.ExitCode())
		assert.Contains(t, string(out), "for redlock's own use")
	}
}
