//go:build unix

package job

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock"
)

// stopped reports whether a child of this process has stopped.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	var s unix.WaitStatus
	got, err := unix.Wait4(pid, &s, unix.WUNTRACED|unix.WNOHANG, nil)
	require.NoError(t, err)
	return got == pid && s.Stopped()
}

// eventually waits until done returns true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for late := time.Now().Add(endless); !done(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(late), what)
	}
}

// TestLateWardenReadsItsOrdersFirst: it resumes after the command's deadline, with a later deadline
// in the pipe.
func TestLateWardenReadsItsOrdersFirst(t *testing.T) {
	for range 20 {
		w, err := startWarden(0, endless)
		require.NoError(t, err)
		t.Cleanup(w.dismiss)
		w.allow(clock.System.Now().Add(endless))
		require.NoError(t, unix.Kill(w.group(), unix.SIGSTOP))
		eventually(t, "it is stopped", func() bool { return stopped(t, w.group()) })
		for _, left := range []time.Duration{0, endless} { // not with an order, which would continue it
			require.NoError(t, binary.Write(w.orders, binary.BigEndian, order{setEnd, int64(MachineTime() + left)}))
		}
		w.send(order{leaveGroup, 0})
		assert.True(t, w.says(hasLeft, endless), "it lives")
		assert.False(t, w.killed)
	}
}

// TestKilledCommandIsReportedAsKilled: this holds even if this process still considers the lock
// held when it learns of the end.
func TestKilledCommandIsReportedAsKilled(t *testing.T) {
	lock, _ := held(t, time.Hour)
	file := filepath.Join(t.TempDir(), "started")
	j := newJob(t, shell(`echo >`+file+`; while :; do sleep 0.01; done`))
	ordered := make(chan bool)
	go func() {
		defer close(ordered)
		for late := time.Now().Add(endless); time.Now().Before(late); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(file); err == nil {
				break
			}
		}
		j.warden.allow(clock.System.Now())
	}()
	r, err := j.Run(lock, os.Environ())
	<-ordered
	require.NoError(t, err)
	assert.True(t, lock.Valid())
	assert.Equal(t, SignalCode(unix.SIGKILL), r.Code)
	assert.True(t, r.Swept)
	assert.ErrorIs(t, r.Lost, redlock.ErrLost)
}

// TestCommandThatKillsItsGroupIsReportedAsEnded: its warden was in the group.
func TestCommandThatKillsItsGroupIsReportedAsEnded(t *testing.T) {
	lock, _ := held(t, time.Hour)
	r, err := newJob(t, shell(`kill -KILL 0`)).Run(lock, os.Environ())
	require.NoError(t, err)
	assert.Equal(t, Result{Code: SignalCode(unix.SIGKILL), Swept: true}, r)
}
