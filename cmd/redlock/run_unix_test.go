//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	lock, err := l.Acquire(t.Context(), "taken")
	tr.NoError(t, err)
	noExec, script := filepath.Join(t.TempDir(), "binary"), filepath.Join(t.TempDir(), "script")
	tr.NoError(t, os.WriteFile(noExec, []byte("of another machine\x00"), 0o700))
	tr.NoError(t, os.WriteFile(script, []byte(`test "$0 $1 $REDLOCK_NAME" = "`+script+` one two s" && exit 7`), 0o700))
	var dead []string
	for range 3 {
		dead = append(dead, "redis://"+deadAddress(t))
	}
	var all sync.WaitGroup
	atATime := make(chan bool, 8)
	reader, err := l.Acquire(t.Context(), "read", redlock.Shared())
	tr.NoError(t, err)
	for _, test := range []struct {
		name   string
		args   []string
		env    string
		code   int
		stderr string
	}{
		{"several names", []string{"run", "z", "--and", "y", "--and", "x", "--and", "y", "--", "sh", "-c", `test "$(echo $REDLOCK_NAME)" = "x y z"`}, "", 0, ""},
		{"a reader beside another", []string{"run", "--shared", "--no-wait", "read", "--", "true"}, "", 0, ""},
		{"none beside a reader", []string{"run", "--no-wait", "read", "--", "true"}, "", 75, ""},
		{"the command's own", []string{"run", "b", "--", "sh", "-c", "exit 9"}, "", 9, ""},
		{"held, one try", []string{"run", "--no-wait", "taken", "--", "true"}, "", 75, ""},
		{"held, one try, told", []string{"run", "-v", "--no-wait", "taken", "--", "true"}, "", 75, "held by another"},
		{"held, waited for in silence", []string{"run", "-q", "--wait", "10s", "taken", "--", "true"}, "", 75, ""},
		{"nested", []string{"run", "outer", "--", "env", commandEnv + "=1", self(t), "run", "outer", "--", "true"}, "", 75, "locks are not re-entrant"},
		{"nested, another name", []string{"run", "outer-1", "--", "env", commandEnv + "=1", self(t), "run", "inner-1", "--", "true"}, "", 0, ""},
		{"no quorum, in silence", []string{"run", "-q", "--no-wait", "a", "--", "true"}, nodesEnv(dead), 69, "no quorum"},
		{"held, at the end of the waiting", []string{"run", "--wait", "10s", "taken", "--", "true"}, "", 75, "redlock: taken: waited 10s: held by another\n"},
		{"held, one of several", []string{"run", "--wait", "10s", "m", "--and", "taken", "--", "true"}, "", 75, "m, taken: waited 10s: held by another: taken"},
		{"held, with a code of one's own", []string{"run", "-E", "3", "--no-wait", "taken", "--", "true"}, "", 3, ""},
		{"no quorum", []string{"run", "a", "--", "true"}, nodesEnv(dead), 69, "no quorum"},
		{"not executable", []string{"run", "a", "--", "/etc/passwd"}, "", 126, "permission denied"},
		{"not a program", []string{"run", "a", "--", noExec}, "", 126, "exec format error"},
		{"a script without #!", []string{"run", "s", "--", script, "one two"}, "", 7, ""},
		{"not there", []string{"run", "a", "--", "no-such-command"}, "", 127, "no-such-command"},
		{"a name that begins with -", []string{"run", "--", "-e", "--", "sh", "-c", "exit 8"}, "", 8, ""},
		{"no quorum, so many tries", []string{"run", "--no-wait", "--retries", "2", "--retry-interval", "10ms", "a", "--", "true"}, nodesEnv(dead), 69, "no quorum has answered for "},
	} {
		all.Go(func() {
			atATime <- true
			defer func() { <-atATime }()
			p := command(t, f.URLs(), test.args...)
			if test.env != "" {
				p.Env = append(p.Env, test.env)
			}
			code, stdout, stderr := p.outcome(t)
			assert.Equal(t, test.code, code, "%s: %s", test.name, stderr)
			assert.Empty(t, stdout, test.name)
			if test.stderr == "" {
				assert.Empty(t, stderr, test.name)
				return
			}
			assert.Contains(t, stderr, test.stderr, test.name)
			assert.Equal(t, 1, strings.Count(stderr, "\n"), "%s: one line: %s", test.name, stderr)
		})
	}
	all.Wait()
	tr.NoError(t, lock.Release(t.Context()))
	tr.NoError(t, reader.Release(t.Context()))
	for _, name := range []string{"b", "taken", "-e"} {
		free(t, l, name)
	}
}

// A caller that tries once waits only milliseconds for the TTL of the key, so on a busy machine the
// try may end before the TTL arrives.
func TestKeyWithoutTTLIsReported(t *testing.T) {
	t.Parallel()
	f := five(t)
	for _, url := range f.URLs() {
		ask(t, url, "SET", "stuck", "v")
	}
	eventually(t, "a key without TTL is reported", func() bool {
		code, _, stderr := command(t, f.URLs(), "run", "--no-wait", "stuck", "--", "true").outcome(t)
		return code == 75 && strings.Contains(stderr, "by a key without TTL; see redlock status stuck")
	})
}

// deadAddress returns an address where no server listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	tr.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestCommandHasItsLockInTheEnvironmentAndOurInputAndOutput(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "--fenced", "it's", "--", "sh", "-c", `echo "$REDLOCK_NAME $REDLOCK_FENCE $REDLOCK_UNTIL"; cat; echo oops >&2`)
	p.Env = append(p.Env, "REDLOCK_NAME=old", "REDLOCK_FENCE=7", "REDLOCK_UNTIL=old")
	input := strings.Repeat("line\n", 100_000)
	p.Stdin = strings.NewReader(input)
	before := time.Now()
	code, stdout, stderr := p.outcome(t)
	assert.Zero(t, code)
	assert.Equal(t, "oops\n", stderr)
	first, rest, _ := strings.Cut(stdout, "\n")
	assert.Equal(t, input, rest)
	fields := strings.Fields(first)
	tr.Len(t, fields, 3)
	assert.Equal(t, "it's", fields[0])
	token, err := strconv.ParseInt(fields[1], 10, 64)
	tr.NoError(t, err)
	assert.Greater(t, token, before.Add(-time.Hour).UnixMicro())
	until, err := time.Parse(time.RFC3339Nano, fields[2])
	tr.NoError(t, err)
	assert.WithinRange(t, until, before, time.Now().Add(endless))

	p = command(t, f.URLs(), "run", "x", "--", "sh", "-c", `echo "${REDLOCK_FENCE-none}"`)
	p.Env = append(p.Env, "REDLOCK_FENCE=7")
	_, stdout, _ = p.outcome(t)
	assert.Equal(t, "none\n", stdout, "a token of another lock must not be taken for this one's")
}

func TestPermitsLimitConcurrentCommands(t *testing.T) {
	t.Parallel()
	f := five(t)
	seen := map[string]bool{}
	for _, weight := range []int{1, 2} {
		p := command(t, f.URLs(), "run", "--permits", "3", "--weight", strconv.Itoa(weight), "--no-wait", "x", "--", "sh", "-c", `echo "$REDLOCK_PERMIT"; read x`)
		_, err := p.StdinPipe()
		tr.NoError(t, err)
		p.begin(t)
		for range weight {
			permit, err := p.lines.ReadString('\n')
			tr.NoError(t, err)
			seen[permit] = true
		}
	}
	assert.Equal(t, map[string]bool{"0\n": true, "1\n": true, "2\n": true}, seen)
	for weight, says := range map[string]string{"1": "all 3 permits are held", "2": "fewer than 2 of 3 permits are free"} {
		code, _, stderr := command(t, f.URLs(), "run", "-v", "--permits", "3", "--weight", weight, "--no-wait", "x", "--", "true").outcome(t)
		assert.Equal(t, 75, code)
		assert.Contains(t, stderr, says)
	}
	p := command(t, f.URLs(), "run", "y", "--", "sh", "-c", `echo "${REDLOCK_PERMIT-none}"`)
	p.Env = append(p.Env, "REDLOCK_PERMIT=2")
	_, stdout, _ := p.outcome(t)
	assert.Equal(t, "none\n", stdout)
}

func TestShortJobHoldsItsLockForAWhile(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	file := filepath.Join(t.TempDir(), "oracle")
	p := command(t, f.URLs(), "run", "--min-hold", "1h", "x", "--", self(t)).role("brief", file).begin(t)
	p.says(t, "held")
	eventually(t, "the command has ended", func() bool {
		o, err := oracle(file)
		o.Close()
		return err == nil
	})
	_, err := l.TryAcquire(t.Context(), "x")
	assert.ErrorIs(t, err, redlock.ErrHeld)
	p.signal(t, syscall.SIGTERM)
	assert.Zero(t, p.code(t), "the command has done its work")
	free(t, l, "x")

	code, _, _ := command(t, f.URLs(), "run", "--min-hold", "1ms", "x", "--", "sh", "-c", "exit 6").outcome(t)
	assert.Equal(t, 6, code)
}

func TestCommandRunsOncePerTick(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	now := fmt.Sprintf("@%d", time.Now().Unix())
	run := func(args ...string) (int, string, string) {
		return command(t, f.URLs(), append(append([]string{"run", "--once-per", "24h", "--tick", now}, args...), "x", "--", "echo", "ran")...).outcome(t)
	}
	code, stdout, stderr := run()
	assert.Zero(t, code, stderr)
	assert.Equal(t, "ran\n", stdout)
	free(t, l, "x")
	for want, args := range map[int][]string{75: nil, 0: {"-E", "0", "--no-wait"}, 3: {"-E", "3", "-v"}} {
		code, stdout, stderr = run(args...)
		assert.Equal(t, want, code)
		assert.Empty(t, stdout)
		if want == 3 {
			assert.Contains(t, stderr, "redlock: x is done for its tick, 20")
		} else {
			assert.Empty(t, stderr, "cron would mail it")
		}
		free(t, l, "x")
	}
	for i := range 3 {
		ask(t, f.URLs()[i], "SET", "redlock:once:{x}", "nonsense")
	}
	code, stdout, stderr = run()
	assert.Equal(t, exitNoQuorum, code, "it is not known whether the command has run")
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "its mark is not a number")
}

// TestNamedTickReplacesTheTickOfTheStart: a late start does not use the next slot.
func TestNamedTickReplacesTheTickOfTheStart(t *testing.T) {
	t.Parallel()
	f := five(t)
	now := time.Now()
	run := func(name string, at time.Time, want int) string {
		t.Helper()
		code, stdout, stderr := command(t, f.URLs(), "run", "-v", "--once-per", "1h", "--tick", at.Format(time.RFC3339), name, "--", "echo", "ran").outcome(t)
		assert.Equal(t, want, code, stderr)
		assert.Equal(t, want == 0, stdout == "ran\n")
		return stderr
	}
	slot := now.Round(time.Hour)
	run("x", slot.Add(-time.Hour), 0)
	run("x", slot.Add(-time.Hour-20*time.Minute), exitHeld)
	run("x", slot, 0)
	assert.Contains(t, run("x", slot.Add(29*time.Minute), exitHeld), "x is done for its tick, "+slot.Local().Format(time.DateTime))
	run("x", slot.Add(-time.Hour), exitHeld)
	assert.Contains(t, run("y", slot.Add(-4*time.Hour), exitFailed), "y: too late for the tick of "+slot.Add(-4*time.Hour).Local().Format(time.DateTime))
}

// TestStartsOfACommandAreApart: they are apart even if two slots of the clock are as close as
// possible.
func TestStartsOfACommandAreApart(t *testing.T) {
	t.Parallel()
	f := five(t)
	run := func(args ...string) (int, string, string) {
		return command(t, f.URLs(), append(append([]string{"run"}, args...), "x", "--", "echo", "ran")...).outcome(t)
	}
	code, stdout, stderr := run("--at-least-apart", "2s")
	assert.Zero(t, code, stderr)
	assert.Equal(t, "ran\n", stdout)
	began := time.Now()
	for {
		code, stdout, stderr = run("-v", "--no-wait", "--at-least-apart", "2s")
		if code == 0 {
			break
		}
		tr.Equal(t, exitHeld, code, stderr)
		tr.Empty(t, stdout)
		tr.Contains(t, stderr, "redlock: x was last started less than 2s ago")
		tr.Less(t, time.Since(began), time.Minute)
	}
	assert.Equal(t, "ran\n", stdout)
	code, _, stderr = run("--once-per", "1h")
	assert.Zero(t, code, stderr)
	code, _, stderr = run("--at-least-apart", "2s")
	assert.Equal(t, exitFailed, code, stderr)
	assert.Contains(t, stderr, "x has the mark of --once-per, which does not have the time of the last start")
}

// TestTickIsTheTickOfTheStart: the wait for the lock does not change the tick.
func TestTickIsTheTickOfTheStart(t *testing.T) {
	t.Parallel()
	f := five(t)
	free(t, client(t, f), "x")
	for i := range 3 {
		tr.NoError(t, f.Pause(t.Context(), i))
	}
	p := command(t, f.URLs(), "run", "-v", "--once-per", "1s", "--no-wait", "--retries", "1000", "--retry-interval", "50ms", "x", "--", "echo", "ran")
	p.Env = append(p.Env, "REDLOCK_NODE_TIMEOUT=500ms", "REDLOCK_DIAL_TIMEOUT=1s")
	first := once.Tick(time.Now(), time.Second)
	p.begin(t)
	eventually(t, "it waits", func() bool { return strings.Contains(p.stderr.String(), "no quorum") })
	last := once.Tick(time.Now(), time.Second)
	time.Sleep(time.Until(last.Add(2 * time.Second))) // the next ticks
	for i := range 3 {
		tr.NoError(t, f.Resume(t.Context(), i))
	}
	p.says(t, "ran")
	assert.Zero(t, p.code(t), p.stderr.String())
	var mark int64
	for _, url := range f.URLs() {
		n, _ := strconv.ParseInt(has(t, url, "redlock:once:{x}"), 10, 64)
		mark = max(mark, n)
	}
	assert.GreaterOrEqual(t, mark, first.UnixMilli())
	assert.LessOrEqual(t, mark, last.UnixMilli(), "the tick is one that came while it waited")
}

// TestCommandRunsOncePerDay: the day is the day of the given zone, even if servers and machines are
// in other zones.
func TestCommandRunsOncePerDay(t *testing.T) {
	t.Parallel()
	f := five(t)
	for name, offset := range map[string]time.Duration{"Etc/GMT-14": 14 * time.Hour, "Etc/GMT+12": -12 * time.Hour} {
		run := func() (int, string, string) {
			return command(t, f.URLs(), "run", "-v", "--once-per", "day", "--time-zone", name, name, "--", "echo", "ran").outcome(t)
		}
		day := func() string { return time.Now().UTC().Add(offset + 30*time.Second).Format(time.DateOnly) }
		began := day()
		code, stdout, stderr := run()
		assert.Zero(t, code, stderr)
		assert.Equal(t, "ran\n", stdout)
		code, stdout, stderr = run()
		if day() != began {
			t.Skip("the day has ended")
		}
		assert.Equal(t, exitHeld, code, stderr)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, name+" is done for its tick, "+began+"\n")
	}
}

// TestLateCommandIsNotRun: redlock reports that, because possibly no machine has run the command.
func TestLateCommandIsNotRun(t *testing.T) {
	t.Parallel()
	f := five(t)
	lock, err := client(t, f).Acquire(t.Context(), "x")
	tr.NoError(t, err)
	r := &runCommand{acquisition: &acquisition{}, ticks: &once.Job{Every: 5 * time.Minute}, started: time.Now().Add(-11 * time.Minute)}
	err = r.claim(t.Context(), lock)
	assert.Equal(t, exitFailed, exitCode(t.Context(), err))
	assert.ErrorContains(t, err, "x: the lock was granted 11m0s after the start, too late for the tick of 20")
	r.started = time.Now()
	assert.NoError(t, r.claim(t.Context(), lock), "the next tick is another's")
}

// TestSplitVoteSkipsNoTick: the keys belong to machines that started at the same moment. None of
// them has the lock, so one must try again.
func TestSplitVoteSkipsNoTick(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	free(t, l, "x")
	for i, value := range []string{"a", "b", "c"} {
		ask(t, f.URLs()[i], "SET", "x", value, "PX", "1500")
	}
	code, stdout, stderr := command(t, f.URLs(), "run", "--no-wait", "--once-per", "24h", "x", "--", "echo", "ran").outcome(t)
	assert.Zero(t, code, stderr)
	assert.Equal(t, "ran\n", stdout)
}

func TestUnconfirmedReleaseIsReported(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "x", "--", "sh", "-c", "echo ready; read x; exit 4")
	in, err := p.StdinPipe()
	tr.NoError(t, err)
	p.begin(t)
	p.says(t, "ready")
	h := startHold(t, f, "y")
	h.reads(t, "held")
	for i := range 3 {
		tr.NoError(t, f.Kill(t.Context(), i))
	}
	in.Close()
	h.input.Close()
	assert.Equal(t, 4, p.code(t), "the lock was held until the command had ended")
	told := `: no quorum .*; the lock expires within ` + endless.String() + `\n$`
	assert.Regexp(t, `^redlock: release "x"`+told, p.stderr.String())
	assert.Zero(t, h.code(t), "the same of the program")
	assert.Regexp(t, `^redlock: release "y"`+told, h.stderr.String())
}

var (
	losses  = flag.Int("losses", 12, "how many locks TestCommandNeverOutlivesItsLock loses")
	lossTTL = flag.Duration("losses.ttl", 3*time.Second, "and their TTL")
)

// The command and a process that it has started ignore SIGTERM. They hold a lock of the operating
// system until they are dead, and the command writes signs of life. If its last sign is later than
// the grant to the next holder, the command has outlived its quorum lock.
func TestCommandNeverOutlivesItsLock(t *testing.T) {
	t.Parallel()
	const atOnce = 12
	f := five(t)
	next := client(t, f, redlock.TTL(endless), redlock.Renew(false))
	for first := 0; first < *losses; first += atOnce {
		var losing sync.WaitGroup
		for _, h := range holders(t, f, first, min(first+atOnce, *losses)) {
			losing.Go(func() { h.hasEnded(t, f, h.lose(t, next)) })
		}
		losing.Wait()
	}
}

// TestCommandNeverOutlivesItsLockOnABusyMachine: the machine has eight times more work than
// processors. The test is not parallel, because it would slow down other tests.
func TestCommandNeverOutlivesItsLockOnABusyMachine(t *testing.T) {
	f := five(t)
	next := client(t, f, redlock.TTL(endless), redlock.Renew(false))
	runs := holders(t, f, 0, 4)
	for range 8 * runtime.NumCPU() {
		p := exec.Command(self(t))
		p.Env = append(os.Environ(), roleEnv+"=spin")
		tr.NoError(t, p.Start())
		t.Cleanup(func() {
			p.Process.Kill()
			p.Wait()
		})
	}
	var losing sync.WaitGroup
	for _, h := range runs {
		losing.Go(func() { h.hasEnded(t, f, h.lose(t, next)) })
	}
	losing.Wait()
}

// A holder is a run of redlock that can be cut off from each server.
type holder struct {
	*process
	n      int
	name   string
	file   string // file of its command
	relays []*relay.Relay
}

// holders starts the runs with these numbers, and returns when all have held their locks.
func holders(t *testing.T, f fleet.Fleet, from, to int) []*holder {
	t.Helper()
	all := make([]*holder, to-from)
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() {
			all[i] = begin(t, f, from+i)
		})
	}
	starting.Wait()
	return all
}

// begin starts one run, and returns when it has held its lock.
func begin(t *testing.T, f fleet.Fleet, n int) *holder {
	h := &holder{n: n, name: fmt.Sprint("loss-", n)}
	var urls []string
	for _, url := range f.URLs() {
		r, err := relay.New(strings.TrimPrefix(url, "redis://"))
		tr.NoError(t, err)
		t.Cleanup(func() { r.Close() })
		h.relays, urls = append(h.relays, r), append(urls, r.URL())
	}
	h.process, h.file = holding(t, func() *process {
		return command(t, urls, "run", "--ttl", lossTTL.String(), h.name, "--", self(t))
	})
	return h
}

// holding starts a run in the role hold, and returns when its command holds the oracle in file. It
// starts another run if a busy machine gave the first one no lock, or took it before that.
func holding(t *testing.T, run func() *process) (p *process, file string) {
	t.Helper()
	for {
		file = filepath.Join(t.TempDir(), "oracle")
		p = run().role("hold", file).begin(t)
		if line, _ := p.lines.ReadString('\n'); line == "held\n" {
			return p, file
		}
		tr.Contains(t, []int{exitLost, exitNoQuorum}, p.code(t), "%s", p.stderr)
	}
}

// lose cuts the run off from a majority of the servers, and returns the next lock of that name.
func (h *holder) lose(t *testing.T, next *redlock.Locker) *redlock.Lock {
	h.cutOff()
	lock, err := next.Acquire(context.WithoutCancel(t.Context()), h.name)
	tr.NoError(t, err)
	return lock
}

// hasEnded fails if the command was still working when another client had its lock.
func (h *holder) hasEnded(t *testing.T, f fleet.Fleet, another *redlock.Lock) {
	granted := grantedAt(t, f, another)
	assert.Equal(t, exitLost, h.code(t))
	assert.Contains(t, h.stderr.String(), "lock lost")
	if !strings.Contains(h.stderr.String(), "keep running") { // on a busy machine a killed process may exist for seconds
		o, err := oracle(h.file)
		o.Close()
		assert.NoError(t, err, "%s: the command still runs", h.name)
	}
	endedBefore(t, h.file, granted)
	assert.NoError(t, another.Release(context.WithoutCancel(t.Context())))
}

// endedBefore fails if the command with this oracle was still working after its lock was granted to
// another client, or does not die. On a busy machine a killed process does nothing more, but may
// exist for a while.
func endedBefore(t *testing.T, file string, granted time.Time) {
	t.Helper()
	eventually(t, "the command is dead", func() bool {
		o, err := oracle(file)
		o.Close()
		return err == nil
	})
	last := lastSign(t, file)
	assert.Less(t, last, granted, "the command worked on for %v, and another had its lock", last.Sub(granted))
}

func (h *holder) cutOff() {
	fault := relay.Fault{Mode: relay.Drop}
	for i, r := range h.relays[:3] {
		switch (h.n + i) % 3 { // lost: the question, the answer, or both
		case 0:
			r.Break(relay.Requests, fault)
		case 1:
			r.Break(relay.Replies, fault)
		case 2:
			r.Break(relay.Requests, fault)
			r.Break(relay.Replies, fault)
		}
	}
}

// grantedAt returns the time at which a lock without renewal got its quorum, by the servers' clock,
// which is also this machine's clock. The client may learn about it much later.
func grantedAt(t *testing.T, f fleet.Fleet, lock *redlock.Lock) time.Time {
	t.Helper()
	const expiry = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
		local now = redis.call('TIME')
		return now[1] * 1000 + math.floor(now[2] / 1000) + redis.call('PTTL', KEYS[1])`
	var votes []int64
	for _, url := range f.URLs() {
		if at := ask(t, url, "EVAL", expiry, 1, lock.Name(), lock.Value()).(int64); at > 0 {
			votes = append(votes, at-endless.Milliseconds())
		}
	}
	tr.GreaterOrEqual(t, len(votes), 3, "it is held")
	slices.Sort(votes)
	return time.UnixMilli(votes[2])
}

// The command sends signals that end other programs to its whole group, and survives them. The
// warden is in that group and must survive, too.
func TestWardenSurvivesTheSignalsOfTheCommand(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f, redlock.TTL(endless), redlock.Renew(false))
	p, file := holding(t, func() *process {
		return command(t, f.URLs(), "run", "--ttl", "3s", "x", "--", "sh", "-c",
			`all="HUP INT QUIT TERM USR1 USR2 ALRM"; trap "" $all; for s in $all; do kill -$s 0; done; exec "$0"`, self(t))
	})
	p.signal(t, syscall.SIGSTOP)
	lock, err := l.Acquire(t.Context(), "x")
	tr.NoError(t, err)
	endedBefore(t, file, grantedAt(t, f, lock))
	assert.NoError(t, lock.Release(t.Context()))
}

func TestLeftoverProcessesEndBeforeTheRelease(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	eventually(t, "the processes have ended", func() bool { // on a busy machine a killed process may exist for seconds
		file := filepath.Join(t.TempDir(), "oracle")
		p := command(t, f.URLs(), "run", "--kill-after", "100ms", "x", "--", "sh", "-c", `"$0" & read ok; exit 4`, self(t)).role("hold", file)
		in, err := p.StdinPipe()
		tr.NoError(t, err)
		p.begin(t)
		p.says(t, "held")
		_, err = oracle(file)
		tr.ErrorIs(t, err, syscall.EWOULDBLOCK)
		in.Write([]byte("go\n"))
		assert.Equal(t, 4, p.code(t))
		if strings.Contains(p.stderr.String(), "cannot be ended") {
			return false
		}
		_, err = oracle(file)
		assert.NoError(t, err, "it is dead")
		assert.Empty(t, p.stderr.String())
		return true
	})
	free(t, l, "x")
}

// A lock that is not released expires within a TTL, and the command is dead by then.
func TestKilledRedlockEndsItsCommand(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f, redlock.TTL(endless), redlock.Renew(false))
	for name, words := range map[string][]string{"in our group": {self(t)}, "in a group of its own": {"timeout", "60", self(t)}} {
		for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			t.Run(fmt.Sprint(name, ", ", s), func(t *testing.T) {
				t.Parallel()
				p, file := holding(t, func() *process {
					return command(t, f.URLs(), append([]string{"run", "--ttl", "3s", t.Name(), "--"}, words...)...)
				})
				p.signal(t, s)
				lock, err := l.Acquire(t.Context(), t.Name(), redlock.Wait(endless))
				tr.NoError(t, err)
				endedBefore(t, file, grantedAt(t, f, lock))
				tr.NoError(t, lock.Release(t.Context()))
			})
		}
	}
}

// TestDeadWardenIsReplaced: the second warden ends the command of a redlock that is stopped.
func TestDeadWardenIsReplaced(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f, redlock.TTL(endless), redlock.Renew(false))
	for name, words := range map[string][]string{"in our group": {self(t)}, "in a group of its own": {"timeout", "60", self(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, file := holding(t, func() *process { // survives a pause of seconds
				return command(t, f.URLs(), append([]string{"run", "--ttl", "10s", "--kill-after", "0s", t.Name(), "--"}, words...)...)
			})
			first := wardenOf(t, p.Process.Pid)
			tr.Positive(t, first)
			tr.NoError(t, syscall.Kill(first, syscall.SIGKILL))
			eventually(t, "another is there", func() bool {
				second := wardenOf(t, p.Process.Pid)
				return second > 0 && second != first && signalsIgnored(t, second)
			})
			p.signal(t, syscall.SIGSTOP)
			lock, err := l.Acquire(t.Context(), t.Name())
			tr.NoError(t, err)
			endedBefore(t, file, grantedAt(t, f, lock))
			tr.NoError(t, lock.Release(t.Context()))
		})
	}
}

// wardenOf returns the living warden of a run of redlock, or 0.
func wardenOf(t *testing.T, pid int) int {
	t.Helper()
	out, _ := exec.Command("ps", "-e", "-o", "pid=,ppid=,stat=,args=").Output()
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) > 4 && f[1] == strconv.Itoa(pid) && !strings.HasPrefix(f[2], "Z") && f[4] == "__warden" {
			warden, err := strconv.Atoi(f[0])
			tr.NoError(t, err)
			return warden
		}
	}
	return 0
}

// signalsIgnored reports whether a warden ignores SIGTERM: from then on it reads the orders in its
// pipe.
func signalsIgnored(t *testing.T, pid int) bool {
	t.Helper()
	out, _ := exec.Command("ps", "-o", "ignored=", "-p", strconv.Itoa(pid)).Output()
	mask, _ := strconv.ParseUint(strings.TrimSpace(string(out)), 16, 64)
	return mask&(1<<(uint(syscall.SIGTERM)-1)) != 0
}

// TestLossIsReportedInTheServersWords: run and hold do so if the servers refuse renewals.
func TestLossIsReportedInTheServersWords(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "--ttl", "10s", "--kill-after", "0s", "x", "--", self(t)).role("listen", "").begin(t)
	p.says(t, "ready")
	h := startHold(t, f, "--ttl", "10s", "--stop-within", "0s", "y")
	h.reads(t, "held")
	for _, url := range f.URLs() {
		ask(t, url, "CONFIG", "SET", "min-replicas-to-write", "1")
	}
	const words = `: answers "NOREPLICAS Not enough good replicas to write`
	assert.Equal(t, exitLost, p.code(t))
	assert.Contains(t, p.stderr.String(), `"x": lock lost: `) // by the lock's deadline, redlock's or its warden's
	assert.Equal(t, 1, strings.Count(p.stderr.String(), words), "five servers are told once: %s", p.stderr.String())
	assert.Contains(t, h.reads(t, "stop").Reason, words)
}

// TestFaultIsReportedOnce: -v reports it in words, and -vv in the log.
func TestFaultIsReportedOnce(t *testing.T) {
	t.Parallel()
	var dead []string
	for range 3 {
		dead = append(dead, "redis://"+deadAddress(t))
	}
	for verbose, told := range map[string]struct{ words, log bool }{"-v": {words: true}, "-vv": {log: true}} {
		code, _, stderr := command(t, dead, "run", verbose, "--retries", "0", "--no-wait", "x", "--", "true").outcome(t)
		assert.Equal(t, 69, code)
		assert.Equal(t, told.words, strings.Contains(stderr, ": fails: "), stderr)
		assert.Equal(t, told.log, strings.Contains(stderr, "redlock: a node's fault"), stderr)
	}
}

func TestClosedStandardErrorEndsNothing(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "-v", "x", "--", "sh", "-c", "exit 4")
	read, write, err := os.Pipe()
	tr.NoError(t, err)
	defer write.Close()
	tr.NoError(t, read.Close())
	p.Cmd.Stderr = write
	tr.NoError(t, p.Start())
	assert.Equal(t, 4, p.code(t))
	free(t, client(t, f), "x")
}

func TestSignalsGoToTheCommand(t *testing.T) {
	t.Parallel()
	f := five(t)
	for _, s := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := command(t, f.URLs(), "run", s.String(), "--", self(t)).role("listen", "").begin(t)
			p.says(t, "ready")
			p.signal(t, s)
			p.says(t, "got "+s.String())
			assert.Equal(t, 5, p.code(t))
		})
	}
}

func TestSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	lock, err := l.Acquire(t.Context(), "x")
	tr.NoError(t, err)
	for _, s := range job.EndingSignals {
		p := command(t, f.URLs(), "run", "-v", "x", "--", "echo", "ran").begin(t)
		eventually(t, "it waits", func() bool { return strings.Contains(p.stderr.String(), "held by another") })
		p.signal(t, s)
		out, _ := p.lines.ReadString('\n') // the end of the output; code closes it
		assert.Empty(t, out)
		assert.Equal(t, 128+int(s), p.code(t))
	}
	tr.NoError(t, lock.Release(t.Context()))
	free(t, l, "x")
}

// TestIgnoredSignalStaysIgnored: redlock and its command ignore it, because nohup relies on that.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs())
	path := p.Path
	p.Path, p.Args = "/bin/sh", []string{"sh", "-c", `trap "" HUP; exec "$0" run x -- sh -c 'echo ready; read x; kill -HUP $$; echo on'`, path}
	in, err := p.StdinPipe()
	tr.NoError(t, err)
	p.begin(t)
	p.says(t, "ready")
	p.signal(t, syscall.SIGHUP)
	_, err = in.Write([]byte("go\n"))
	tr.NoError(t, err)
	p.says(t, "on")
	assert.Zero(t, p.code(t))
}

func TestCommandRunsUnderALockOfItsGroup(t *testing.T) {
	gs := startGroups(t, fleet.Embedded, "a", "b")
	l := gs.locker(t, "a", "b")
	start := func(line string) *process { return command(t, nil, gs.on(line, "a", "b")...) }
	inA, inB := nameIn("a"), nameIn("b")
	code, stdout, stderr := start("run " + inB + " --and " + inA + " -- printenv REDLOCK_NAME").outcome(t)
	assert.Zero(t, code, stderr)
	assert.ElementsMatch(t, []string{inA, inB}, strings.Fields(stdout))
	lock, err := l.Acquire(t.Context(), inB)
	tr.NoError(t, err)
	code, _, stderr = start("run --no-wait " + inB + " -- true").outcome(t)
	assert.Equal(t, exitHeld, code, stderr)
	tr.NoError(t, lock.Release(t.Context()))
}

// TestRunWaitsThroughAPauseOfTheServers: run waits until the limit of --wait. By default, and with
// --no-wait, it waits for three seconds.
func TestRunWaitsThroughAPauseOfTheServers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pause time.Duration
		flags []string
		code  int
	}{
		"--wait 30s":            {4 * time.Second, []string{"--wait", "30s"}, 0},
		"no flag":               {time.Second, nil, 0},
		"--no-wait":             {time.Second, []string{"--no-wait"}, 0},
		"--no-wait, for longer": {time.Minute, []string{"--no-wait"}, 69},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := five(t)
			free(t, client(t, f), "x") // the records have been written
			stderr := ""
			eventually(t, "it ends as it should", func() (ok bool) { // a busy machine may use up the three seconds
				for _, url := range f.URLs()[:3] {
					ask(t, url, "CLIENT", "PAUSE", test.pause.Milliseconds())
				}
				p := command(t, f.URLs(), append(append([]string{"run"}, test.flags...), "x", "--", "true")...)
				p.Env = append(p.Env, "REDLOCK_NODE_TIMEOUT=500ms", "REDLOCK_DIAL_TIMEOUT=1s") // the defaults
				var code int
				code, _, stderr = p.outcome(t)
				return code == test.code
			})
			if test.code == 69 {
				assert.Regexp(t, `no quorum has answered for ([3-9]|\d\d)`, stderr)
				for i := range 3 { // the clients close sooner without these servers
					tr.NoError(t, f.Kill(t.Context(), i))
				}
			}
		})
	}
}

// TestFailedForkIsNotAFaultOfTheCommand: the error names the likely limits.
func TestFailedForkIsNotAFaultOfTheCommand(t *testing.T) {
	t.Parallel()
	fork := &fs.PathError{Op: "fork/exec", Path: "/usr/bin/redlock", Err: syscall.EAGAIN}
	err := cannotRun("job", fmt.Errorf("cannot start the process that watches the command: %w", fork))
	assert.EqualError(t, err, "job: cannot start the process that watches the command: fork/exec /usr/bin/redlock: "+
		"resource temporarily unavailable; this user may have no more processes (ulimit -u, TasksMax=)")
	var coded *exitError
	if assert.ErrorAs(t, err, &coded) {
		assert.Equal(t, exitCannotRun, coded.code)
	}
	assert.EqualError(t, cannotRun("job", &fs.PathError{Op: "exec", Path: "/usr/bin/job", Err: syscall.EACCES}), "job: permission denied")
}

// TestSignalEndsTheWaitForAFile: the file can be a pipe without a writer. redlock has not requested
// a lock yet.
func TestSignalEndsTheWaitForAFile(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"run --config PIPE job -- true",
		"run --node rediss://127.0.0.1:1 --tls-ca PIPE job -- true",
		"serve --node redis://127.0.0.1:1 --listen 127.0.0.1:0 --state PIPE",
	} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		tr.NoError(t, syscall.Mkfifo(pipe, 0o600))
		p := command(t, nil, strings.Fields(strings.Replace(args, "PIPE", pipe, 1))...).begin(t)
		eventually(t, "it reads", func() bool { // a writer can open the pipe only then
			w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if err == nil {
				t.Cleanup(func() { w.Close() })
			}
			return err == nil
		})
		p.signal(t, syscall.SIGTERM)
		assert.Equal(t, 128+int(syscall.SIGTERM), p.code(t), args)
		assert.Contains(t, p.stderr.String(), "redlock: ended by a signal: terminated")
	}
}
