//go:build unix

package job

import (
	"encoding/binary"
	"math"
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

// TestAWardenDecidesByAllItsOrders: each case is what a warden finds in its pipe, with the moment
// before it looked, and what it does then.
func TestAWardenDecidesByAllItsOrders(t *testing.T) {
	t.Parallel()
	type look struct {
		now time.Duration
		order
		does action
	}
	for name, looks := range map[string][]look{
		"a command without an end lives":        {{5, order{silence, 0}, toWait}, {math.MaxInt64 - 1, order{silence, 0}, toWait}},
		"it dies at the end of its time":        {{0, order{setEnd, 10}, toWait}, {9, order{silence, 0}, toWait}, {10, order{silence, 0}, toKill}},
		"or whenever a late warden looks":       {{0, order{setEnd, 10}, toWait}, {90, order{silence, 0}, toKill}},
		"a time that is over when it is set":    {{0, order{setEnd, -5}, toWait}, {0, order{silence, 0}, toKill}},
		"each renewal moves the end":            {{0, order{setEnd, 10}, toWait}, {9, order{setEnd, 20}, toWait}, {19, order{silence, 0}, toWait}, {20, order{silence, 0}, toKill}},
		"a renewal that was in the pipe counts": {{0, order{setEnd, 10}, toWait}, {15, order{setEnd, 20}, toWait}, {15, order{silence, 0}, toWait}},
		"all of them are read":                  {{0, order{setEnd, 10}, toWait}, {25, order{setEnd, 20}, toWait}, {25, order{setEnd, 30}, toWait}, {25, order{silence, 0}, toWait}},
		"the last one too late":                 {{0, order{setEnd, 10}, toWait}, {25, order{setEnd, 20}, toWait}, {25, order{silence, 0}, toKill}},
		"a loss makes the end earlier":          {{0, order{setEnd, 90}, toWait}, {5, order{setEnd, 10}, toWait}, {10, order{silence, 0}, toKill}},
		"other orders do not move it":           {{0, order{setEnd, 10}, toWait}, {12, order{setCommand, 7}, toWait}, {12, order{silence, 0}, toKill}},
		"the first process dies":                {{0, order{setEnd, 90}, toWait}, {5, order{widowed, 0}, toKill}},
		"and had no command":                    {{0, order{widowed, 0}, toKill}},
		"a warden that has left still watches":  {{0, order{setEnd, 10}, toWait}, {12, order{leaveGroup, 0}, toLeave}, {12, order{silence, 0}, toKill}},
		"one that is not needed kills nothing":  {{0, order{setEnd, 10}, toWait}, {12, order{standDown, 0}, toEnd}},
	} {
		w := watch{until: math.MaxInt64}
		for i, l := range looks {
			assert.Equal(t, l.does, w.obey(l.order, l.now), "%s: look %d", name, i)
		}
	}
}

// TestAWardenWaitsNoLongerThanForTheEnd, and looks at the clock now and then, because the machine may
// sleep while it waits.
func TestAWardenWaitsNoLongerThanForTheEnd(t *testing.T) {
	t.Parallel()
	w := watch{until: time.Hour}
	assert.Less(t, w.patience(0), time.Second)
	assert.Equal(t, time.Millisecond, w.patience(time.Hour-time.Millisecond))
	assert.Zero(t, w.patience(2*time.Hour))
}

// stopped reports whether a child of this process has stopped.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	var s unix.WaitStatus
	got, err := unix.Wait4(pid, &s, unix.WUNTRACED|unix.WNOHANG, nil)
	require.NoError(t, err)
	return got == pid && s.Stopped()
}

// eventually waits until done.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for late := time.Now().Add(endless); !done(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(late), what)
	}
}

// TestALateWardenReadsItsOrdersFirst: when it comes to, the command's time is over, and a later end is
// in the pipe.
func TestALateWardenReadsItsOrdersFirst(t *testing.T) {
	for range 20 {
		w, err := startWarden()
		require.NoError(t, err)
		t.Cleanup(w.dismiss)
		w.allow(clock.System.Now().Add(endless))
		require.NoError(t, unix.Kill(w.group(), unix.SIGSTOP))
		eventually(t, "it is stopped", func() bool { return stopped(t, w.group()) })
		for _, left := range []time.Duration{0, endless} { // not by order, which would continue it
			require.NoError(t, binary.Write(w.orders, binary.BigEndian, order{setEnd, int64(machineTime() + left)}))
		}
		assert.True(t, w.leave(), "it lives")
		assert.False(t, w.killed)
	}
}

// TestWhatTheWardenKillsHasNotEndedByItself: this process takes the lock for held when it learns of
// the end.
func TestWhatTheWardenKillsHasNotEndedByItself(t *testing.T) {
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

// TestACommandThatKillsItsGroupHasEndedByItself, though its warden was in it.
func TestACommandThatKillsItsGroupHasEndedByItself(t *testing.T) {
	lock, _ := held(t, time.Hour)
	r, err := newJob(t, shell(`kill -KILL 0`)).Run(lock, os.Environ())
	require.NoError(t, err)
	assert.Equal(t, Result{Code: SignalCode(unix.SIGKILL), Swept: true}, r)
}
