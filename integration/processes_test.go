package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

const (
	counters   = 4  // processes
	goroutines = 4  // of each
	increments = 50 // of each of those
	victim     = counters
)

func TestProcessesExcludeEachOtherAndOutliveAKilledHolder(t *testing.T) {
	const (
		ttl       = 10 * time.Second
		victimTTL = time.Second
	)
	onEveryKind(t, func(t *testing.T, r *rig) {
		dir := t.TempDir()
		play := func(name string, who int, ttl time.Duration) *process {
			return start(t, role{Name: name, URLs: r.URLs(), Lock: "counter", TTL: ttl, Dir: dir, Who: who})
		}
		holder := play("hold", victim, victimTTL)
		holder.expect(t, "holding")
		var others []*process
		for who := range counters {
			others = append(others, play("count", who, ttl))
		}
		for _, p := range others {
			p.expect(t, "refused")
		}

		holder.kill()
		died := time.Now()
		journal, err := openJournal(dir)
		require.NoError(t, err)
		defer journal.Close()
		require.NoError(t, journal.write(leaves, victim))
		first := make(chan time.Time, counters)
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, p := range others {
			wg.Go(func() {
				if assert.Equal(t, "acquired", <-p.lines) {
					first <- time.Now()
				}
			})
		}
		select {
		case at := <-first:
			t.Logf("acquired %v after the holder was killed", at.Sub(died).Round(time.Millisecond))
			assert.Less(t, at.Sub(died), victimTTL+5*slack)
		case <-time.After(longTTL):
			t.Fatal("nobody acquires the killed holder's lock")
		}
		for _, p := range others {
			p.finish(t)
		}

		n, err := os.ReadFile(filepath.Join(dir, "counter"))
		require.NoError(t, err)
		assert.Equal(t, strconv.Itoa(counters*goroutines*increments), string(n), "increments were lost")
		turns, changes := readJournal(t, dir)
		assert.Equal(t, counters*goroutines*increments+1, turns)
		t.Logf("%d of %d times the lock went to another process", changes, turns)
		assert.Greater(t, changes, counters, "the processes did not compete, they took turns")
	})
}

// holdOn takes the lock and keeps it until the process is killed.
func holdOn(r role) error {
	locker, err := r.locker()
	if err != nil {
		return err
	}
	journal, err := openJournal(r.Dir)
	if err != nil {
		return err
	}
	lock, err := locker.Acquire(context.Background(), r.Lock)
	if err != nil {
		return err
	}
	if err := journal.write(enters, r.Who); err != nil {
		return err
	}
	say("holding")
	<-lock.Context().Done()
	return fmt.Errorf("the lock has ended: %w", context.Cause(lock.Context()))
}

// countUp increments a counter in a file many times, by reading and writing it, so that two
// processes that do so at once lose an increment.
func countUp(r role) error {
	var refused, acquired sync.Once
	locker, err := r.locker(redlock.Observe(watch(func(e redlock.Event) bool {
		if e.Kind == redlock.EventAttempt && e.Err != nil {
			refused.Do(func() { say("refused") })
		}
		return false
	})))
	if err != nil {
		return err
	}
	journal, err := openJournal(r.Dir)
	if err != nil {
		return err
	}
	increment := func(context.Context) error {
		if err := journal.write(enters, r.Who); err != nil {
			return err
		}
		acquired.Do(func() { say("acquired") })
		path := filepath.Join(r.Dir, "counter")
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		n, _ := strconv.Atoi(string(text)) // no file is zero
		if err := os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
			return err
		}
		return journal.write(leaves, r.Who)
	}
	errs := make(chan error, goroutines)
	for range goroutines {
		go func() {
			for range increments {
				if err := locker.Do(context.Background(), r.Lock, increment); err != nil {
					errs <- err
					return
				}
				// Something else to do, or this process would hand the lock to its own
				// waiters until all of them are done, and compete with no other.
				<-time.After(rand.N(20 * time.Millisecond))
			}
			errs <- nil
		}()
	}
	for range goroutines {
		if err := <-errs; err != nil {
			return err
		}
	}
	return locker.Close()
}

// A journal is a file to which the processes append when they enter and leave
// the section that the lock protects. Appends of a line are atomic, so the order of the lines
// is the order of events, without comparing clocks.
type journal struct{ *os.File }

const (
	enters = "enters"
	leaves = "leaves"
)

func openJournal(dir string) (journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return journal{f}, err
}

func (j journal) write(what string, who int) error {
	_, err := fmt.Fprintln(j.File, who, what)
	return err
}

// readJournal checks that no process entered before the one before had left, and returns how
// often processes entered, and how often that was another one than before.
func readJournal(t *testing.T, dir string) (entries, changes int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "journal"))
	require.NoError(t, err)
	inside, last := "", ""
	for n, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		who, what, _ := strings.Cut(line, " ")
		switch what {
		case enters:
			require.Empty(t, inside, "line %d: %s enters while another is inside", n+1, who)
			entries++
			if last != "" && last != who {
				changes++
			}
			inside, last = who, who
		case leaves:
			require.Equal(t, inside, who, "line %d: left by one who is not inside", n+1)
			inside = ""
		default:
			t.Fatalf("line %d: %q", n+1, line)
		}
	}
	require.Empty(t, inside)
	return entries, changes
}

// roleEnv makes the test binary play one client process's part, which it describes in JSON,
// instead of running tests.
const roleEnv = "REDLOCK_INTEGRATION_ROLE"

// A role is the work of another process: one of the table below.
type role struct {
	Name string
	URLs []string
	Lock string
	TTL  time.Duration
	Dir  string // shared by the processes of one test
	Who  int
}

var roles = map[string]func(role) error{
	"count": countUp,
	"hold":  holdOn,
	"leave": leave,
}

// play plays a role and returns the process's exit code.
func play(text string) int {
	// The other end is the parent's. It is closed when the parent dies, too.
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(2)
	}()
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = roles[r.Name](r)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s %d: %v\n", r.Name, r.Who, err)
		return 1
	}
	return 0
}

// locker opens the process's own Locker.
func (r role) locker(opts ...redlock.LockerOption) (*redlock.Locker, error) {
	members, err := pool.Open(r.URLs...)
	if err != nil {
		return nil, err
	}
	return redlock.New(members, append([]redlock.LockerOption{redlock.TTL(r.TTL), redlock.NodeTimeout(r.TTL / 2), redlock.MemoryGuard(false)}, opts...)...)
}

// say writes a line to the parent.
func say(line string) { fmt.Println(line) }

// A process plays a role.
type process struct {
	role  role
	cmd   *exec.Cmd
	lines chan string // of its output
	done  chan struct{}
	err   error // how it ended; read after done is closed
}

// start starts a process that lasts no longer than the test.
func start(t *testing.T, r role) *process {
	t.Helper()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{role: r, cmd: exec.Command(exe), lines: make(chan string, 100), done: make(chan struct{})}
	// The race detector would hold up the end of the process for a second, in which
	// requests could still be made that a real program has no time for.
	p.cmd.Env = append(os.Environ(), roleEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(sync.OnceFunc(func() {
		p.kill()
		stdin.Close()
	}))
	go func() {
		defer close(p.done)
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.lines <- s.Text()
		}
		p.err = p.cmd.Wait() // only now: Wait closes the pipe
	}()
	return p
}

// kill is kill -9. The process has ended when it returns.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// expect waits for a line.
func (p *process) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(t, ok, "%s %d ended without %q: %v", p.role.Name, p.role.Who, want, p.err)
		require.Equal(t, want, line, "%s %d", p.role.Name, p.role.Who)
	case <-time.After(longTTL):
		t.Fatalf("%s %d does not say %q", p.role.Name, p.role.Who, want)
	}
}

// finish waits for the end, which must be a good one.
func (p *process) finish(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		require.NoError(t, p.err, "%s %d", p.role.Name, p.role.Who)
	case <-time.After(longTTL):
		t.Fatalf("%s %d does not end", p.role.Name, p.role.Who)
	}
}

// The key is gone when the process has ended, not soon after, because a process that has ended
// cannot release it.
func TestAProgramThatEndsAfterCloseLeavesNoKey(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		for i := range 3 {
			r.setMany(t, i, 1, func(int) string { return "held" })
		}
		for n := range 20 {
			start(t, role{Name: "leave", URLs: r.URLs(), Lock: "held", TTL: longTTL, Who: n}).finish(t)
			for i := range nodes {
				keys, err := redis.Strings(r.do(i, "KEYS", "*"))
				require.NoError(t, err)
				if i < 3 {
					require.Equal(t, []string{"held"}, keys, "node %d, run %d", i, n)
				} else {
					require.Empty(t, keys, "node %d, run %d", i, n)
				}
			}
		}
		for i := range 3 {
			r.must(t, i, "DEL", "held")
		}
	})
}

// leave ends the process with a lock that was not released, and directly after a failed
// attempt, a release, and a release whose answers were not waited for.
func leave(r role) error {
	locker, err := r.locker()
	if err != nil {
		return err
	}
	if _, err := locker.TryAcquire(context.Background(), fmt.Sprint("kept ", r.Who)); err != nil {
		return err
	}
	if _, err := locker.TryAcquire(context.Background(), r.Lock); !errors.Is(err, redlock.ErrHeld) {
		return fmt.Errorf("want ErrHeld: %w", err)
	}
	lock, err := locker.TryAcquire(context.Background(), fmt.Sprint("released ", r.Who))
	if err != nil {
		return err
	}
	unawaited, err := locker.TryAcquire(context.Background(), fmt.Sprint("unawaited ", r.Who))
	if err != nil {
		return err
	}
	if err := lock.Release(context.Background()); err != nil {
		return err
	}
	// Without its script a release takes two round trips: more than closing
	// a connection does by the way.
	for _, url := range r.URLs {
		c, err := redis.DialURL(url)
		if err != nil {
			return err
		}
		if _, err := c.Do("SCRIPT", "FLUSH"); err != nil {
			return err
		}
		c.Close()
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := unawaited.Release(ended); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return locker.Close()
}
