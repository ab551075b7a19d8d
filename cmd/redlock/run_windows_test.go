package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
	"golang.org/x/sys/windows"

	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/redlock"
)

func TestCommandHasItsOwnCodeAndOurInputAndOutput(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "x", "--", self(t), "one two", `"3"`).role("echo", "")
	p.Stdin = strings.NewReader("typed\n")
	code, stdout, stderr := p.outcome(t)
	assert.Equal(t, 70_007, code)
	assert.Equal(t, "typed x [one two \"3\"]\n", stdout)
	assert.Empty(t, stderr)

	code, _, stderr = command(t, f.URLs(), "run", "y", "--", "no-such-command").outcome(t)
	assert.Equal(t, exitNotFound, code, stderr)
	code, _, stderr = command(t, f.URLs(), "run", "y", "--", "cmd", "/c", "exit 9").outcome(t)
	assert.Equal(t, 9, code, stderr)
	l := client(t, f)
	free(t, l, "x")
	free(t, l, "y")
}

// TestKilledRedlockEndsItsCommand: the command, even if it is suspended, and its processes end
// before another client can have the lock.
func TestKilledRedlockEndsItsCommand(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(windows.Handle) error{
		"killed": func(process windows.Handle) error { return windows.TerminateProcess(process, 1) },
		"suspended": func(process windows.Handle) error {
			if status, _, _ := windows.NewLazySystemDLL("ntdll.dll").NewProc("NtSuspendProcess").Call(uintptr(process)); status != 0 {
				return windows.NTStatus(status)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := five(t)
			l := client(t, f, redlock.TTL(endless), redlock.Renew(false))
			file := filepath.Join(t.TempDir(), "oracle")
			p := command(t, f.URLs(), "run", "--ttl", "10s", "x", "--", self(t)).role("hold", file).begin(t)
			p.says(t, "held")
			_, err := oracle(file)
			tr.ErrorIs(t, err, windows.ERROR_SHARING_VIOLATION)
			process, err := windows.OpenProcess(windows.PROCESS_TERMINATE|windows.PROCESS_SUSPEND_RESUME, false, uint32(p.Process.Pid))
			tr.NoError(t, err)
			defer windows.CloseHandle(process)
			tr.NoError(t, stop(process))
			lock, err := l.Acquire(t.Context(), "x")
			tr.NoError(t, err)
			has, err := oracle(file)
			tr.NoError(t, err, "it is dead")
			windows.CloseHandle(has)
			tr.NoError(t, lock.Release(t.Context()))
		})
	}
}

func TestLeftoverProcessesEndBeforeTheRelease(t *testing.T) {
	t.Parallel()
	f := five(t)
	file := filepath.Join(t.TempDir(), "oracle")
	p := command(t, f.URLs(), "run", "--kill-after", "100ms", "x", "--", self(t)).role("leave", file).begin(t)
	assert.Zero(t, p.code(t), p.stderr.String())
	has, err := oracle(file)
	tr.NoError(t, err, "it is dead")
	windows.CloseHandle(has)
	assert.Empty(t, p.stderr.String())
	free(t, client(t, f), "x")
}

func TestLostLockEndsTheCommand(t *testing.T) {
	t.Parallel()
	f := five(t)
	file := filepath.Join(t.TempDir(), "oracle")
	p := command(t, f.URLs(), "run", "--ttl", "10s", "--kill-after", "100ms", "x", "--", self(t)).role("hold", file).begin(t)
	p.says(t, "held")
	takeAway(t, f, "x")
	assert.Equal(t, exitLost, p.code(t), "though it does not end when asked")
	has, err := oracle(file)
	tr.NoError(t, err, "it is dead")
	windows.CloseHandle(has)
}

// press sends a Ctrl-Break to a process that leads a group, if there is a console to do it.
func press(t *testing.T, p *process) {
	t.Helper()
	if err := windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.Process.Pid)); err != nil {
		t.Skip("Ctrl-Break cannot be sent: ", err)
	}
}

func ownGroup(p *process) *process {
	p.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	return p
}

func TestCtrlBreakStopsTheCommandOrTheWait(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := ownGroup(command(t, f.URLs(), "run", "x", "--", self(t)).role("listen", "")).begin(t)
	p.says(t, "ready")
	waits := ownGroup(command(t, f.URLs(), "run", "-v", "x", "--", self(t)).role("listen", "")).begin(t)
	eventually(t, "it waits", func() bool { return strings.Contains(waits.stderr.String(), "held by") })
	press(t, waits)
	assert.Equal(t, job.SignalCode(syscall.SIGINT), waits.code(t), waits.stderr.String())
	press(t, p)
	p.says(t, "got Ctrl-Break")
	assert.Equal(t, 5, p.code(t), p.stderr.String())
	free(t, client(t, f), "x")

	// The loss is seen at the next renewal, after a third of the TTL.
	p = command(t, f.URLs(), "run", "--ttl", "12s", "y", "--", self(t)).role("listen", "").begin(t)
	p.says(t, "ready")
	takeAway(t, f, "y")
	p.says(t, "got Ctrl-Break")
	assert.Equal(t, exitLost, p.code(t), "whatever the command itself ends with")
}

// TestCtrlBreakLeavesTheProgramTimeToStop: Ctrl-Break acts like a signal on Unix.
func TestCtrlBreakLeavesTheProgramTimeToStop(t *testing.T) {
	t.Parallel()
	f := five(t)
	h := &holdProcess{process: ownGroup(command(t, f.URLs(), "hold", "--ttl", "60s", "x"))}
	var err error
	h.input, err = h.StdinPipe()
	tr.NoError(t, err)
	h.begin(t)
	h.reads(t, "held")
	press(t, h.process)
	assert.Greater(t, h.reads(t, "stop").Remaining, (30 * time.Second).Milliseconds())
	tr.NoError(t, h.input.Close())
	assert.Equal(t, exitInterrupted, h.code(t))
	free(t, client(t, f), "x")
}
