package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// A holdProcess is "redlock hold" as the child of a program. The test plays the program.
type holdProcess struct {
	*process
	input io.WriteCloser
}

func startHold(t *testing.T, f fleet.Fleet, args ...string) *holdProcess {
	t.Helper()
	h := &holdProcess{process: command(t, f.URLs(), append([]string{"hold"}, args...)...)}
	var err error
	h.input, err = h.StdinPipe()
	tr.NoError(t, err)
	h.begin(t)
	return h
}

// reads waits for a line of this event, and skips renewals unless event is a renewal.
func (h *holdProcess) reads(t *testing.T, event string) (line holdLine) {
	t.Helper()
	late := time.AfterFunc(endless, func() { h.Process.Kill() })
	defer late.Stop()
	for line.Event != event {
		text, err := h.lines.ReadString('\n')
		tr.NoError(t, err, "%s after %+v; standard error: %s", event, line, h.stderr.String())
		tr.True(t, line.Event == "" || line.Event == "renewed", "%+v", line)
		line = holdLine{}
		tr.NoError(t, json.Unmarshal([]byte(text), &line), text)
	}
	return line
}

func TestHoldLastsUntilStandardInputEnds(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	h := startHold(t, f, "--ttl", "9s", "--stop-within", "0s", "--fenced", "--owner", "web-3", "x")
	held := h.reads(t, "held")
	tr.NotNil(t, held.Fence)
	assert.Positive(t, *held.Fence)
	assert.Equal(t, []string{"x", "web-3"}, []string{held.Name, held.Owner})
	for range 4 { // for longer than its TTL
		line := h.reads(t, "renewed")
		assert.LessOrEqual(t, line.Remaining, int64(8100), "a tenth is for the end of the work")
		_, err := l.TryAcquire(t.Context(), "x")
		assert.ErrorIs(t, err, redlock.ErrHeld)
	}
	tr.NoError(t, h.input.Close())
	assert.Zero(t, h.code(t), h.stderr.String())
	free(t, l, "x")

	h = startHold(t, f, "--permits", "2", "y")
	line := h.reads(t, "held")
	tr.NotNil(t, line.Permit)
	assert.Nil(t, line.Fence)
	h = startHold(t, f, "--permits", "2", "--weight", "2", "z")
	assert.Equal(t, []int{0, 1}, h.reads(t, "held").Permits)
	h = startHold(t, f, "--and", "b", "a")
	assert.Equal(t, []string{"a", "b"}, h.reads(t, "held").Names)
}

func TestProgramIsNotifiedOfALoss(t *testing.T) {
	t.Parallel()
	f := five(t)
	h := startHold(t, f, "--ttl", "9s", "--stop-within", "0s", "x")
	host, err := os.Hostname()
	tr.NoError(t, err)
	assert.Regexp(t, fmt.Sprintf("^.+@%s:%d$", regexp.QuoteMeta(host), h.Process.Pid), h.reads(t, "held").Owner)
	takeAway(t, f, "x")
	line := h.reads(t, "stop")
	assert.Zero(t, line.Remaining, "another may have it")
	assert.Contains(t, line.Reason, "lock lost")
	assert.Equal(t, exitLost, h.code(t), "though its input is open")
}

// TestProgramIsWarnedBeforeItsLockEnds: it must have time to stop before another client can have
// the lock.
func TestProgramIsWarnedBeforeItsLockEnds(t *testing.T) {
	t.Parallel()
	f := five(t)
	h := startHold(t, f, "--ttl", "30s", "--node-timeout", "5s", "--stop-within", "5500ms", "x")
	h.reads(t, "held")
	for i := range 3 {
		tr.NoError(t, f.Pause(t.Context(), i))
	}
	line := h.reads(t, "warning")
	assert.LessOrEqual(t, line.Remaining, int64(15_000-3000), "half of the TTL, less the margin")
	line = h.reads(t, "stop")
	assert.Positive(t, line.Remaining)
	assert.LessOrEqual(t, line.Remaining, int64(5500))
	assert.Contains(t, line.Reason, "not renewed in time")
	assert.Equal(t, exitLost, h.code(t))
}

// TestEndOfTheLockIsOnTheClockOfTheMachine: a pause between the readings makes the end earlier, not
// later.
func TestEndOfTheLockIsOnTheClockOfTheMachine(t *testing.T) {
	t.Parallel()
	f := five(t)
	h := startHold(t, f, "--ttl", "9s", "--stop-within", "0s", "x")
	before := job.MachineTime().Milliseconds()
	for _, event := range []string{"held", "renewed", "renewed"} {
		line := h.reads(t, event)
		assert.LessOrEqual(t, line.Until, job.MachineTime().Milliseconds()+line.Remaining)
		assert.Greater(t, line.Until, before)
		assert.LessOrEqual(t, line.Remaining, int64(8100))
	}
	takeAway(t, f, "x")
	assert.Zero(t, h.reads(t, "stop").Until, "another may have it")
}

// TestLockOfADeadProgramIsReleased: redlock releases it even if the program's end of the output
// closes first.
func TestLockOfADeadProgramIsReleased(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	h := startHold(t, f, "--ttl", "9s", "--stop-within", "0s", "x")
	h.reads(t, "held")
	tr.NoError(t, h.stdout.Close())
	eventually(t, "it notices", func() bool { // at its next line
		_, err := l.TryAcquire(t.Context(), "x", redlock.Renew(false))
		return err == nil
	})
	assert.Equal(t, exitFailed, h.code(t))
	assert.Contains(t, h.stderr.String(), "output: ")
}

func TestClosedInputEndsTheWait(t *testing.T) {
	t.Parallel()
	f := five(t)
	lock, err := client(t, f).Acquire(t.Context(), "x")
	tr.NoError(t, err)
	h := startHold(t, f, "x")
	tr.NoError(t, h.input.Close())
	assert.Equal(t, exitFailed, h.code(t))
	assert.Contains(t, h.stderr.String(), "standard input ended before")
	h = startHold(t, f, "--no-wait", "x")
	assert.Equal(t, exitHeld, h.code(t))
	assert.Empty(t, h.stderr.String())
	tr.NoError(t, lock.Release(t.Context()))
}

// TestUnreadOutputBlocksNoEvent: a program that does not read its notices does not block hold.
func TestUnreadOutputBlocksNoEvent(t *testing.T) {
	stuck := make(chan struct{})
	o := newHoldOutput(blocked{stuck})
	for range 10 * unread {
		o.tell(holdLine{Event: "renewed"})
	}
	o.end()
	close(stuck)
	<-o.written

	o = newHoldOutput(unwritable{})
	o.tell(holdLine{Event: "held"})
	assert.ErrorIs(t, <-o.broken, os.ErrClosed)
	o.end()
}

type unwritable struct{}

func (unwritable) Write([]byte) (int, error) { return 0, errors.Join(os.ErrClosed) }

// blocked is an output that no program reads.
type blocked struct{ until chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	<-b.until
	return len(p), nil
}
