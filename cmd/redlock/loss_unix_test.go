//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/relay"
	"github.com/redquorum/redquorum/redlock"
)

var (
	losses  = flag.Int("losses", 24, "how many locks TestACommandNeverOutlivesItsLock loses")
	lossTTL = flag.Duration("losses.ttl", 3*time.Second, "and their TTL")
)

// The command and a process that it has started do not hear SIGTERM. They hold a
// lock of the operating system's, which another who gets the quorum lock finds free,
// or they have outlived theirs.
func TestACommandNeverOutlivesItsLock(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	atOnce := make(chan bool, 12)
	var running sync.WaitGroup
	for n := range *losses {
		atOnce <- true
		running.Go(func() {
			defer func() { <-atOnce }()
			loseByPartition(t, f, l, fmt.Sprintf("loss-%d", n), n)
		})
	}
	running.Wait()
}

// loseByPartition cuts a majority of the servers off from one run of redlock.
func loseByPartition(t *testing.T, f fleet.Fleet, l *redlock.Locker, name string, n int) {
	var relays []*relay.Relay
	var urls []string
	for _, url := range f.URLs() {
		r, err := relay.New(strings.TrimPrefix(url, "redis://"))
		if !assert.NoError(t, err) {
			return
		}
		defer r.Close()
		relays, urls = append(relays, r), append(urls, r.URL())
	}
	file := filepath.Join(t.TempDir(), "oracle")
	p := command(t, urls, "run", "--ttl", lossTTL.String(), name, "--", self(t)).role("hold", file).begin(t)
	p.says(t, "held")
	fault := relay.Fault{Mode: relay.Drop}
	for i, r := range relays[:3] {
		switch (n + i) % 3 { // what got lost: the question, the answer, or both
		case 0:
			r.Break(relay.Requests, fault)
		case 1:
			r.Break(relay.Replies, fault)
		case 2:
			r.Break(relay.Requests, fault)
			r.Break(relay.Replies, fault)
		}
	}
	lock, err := l.Acquire(context.WithoutCancel(t.Context()), name)
	if !assert.NoError(t, err) {
		return
	}
	_, err = oracle(file)
	assert.NoError(t, err, "%s: the command still runs, and another has its lock", name)
	assert.Equal(t, exitLost, p.code(t))
	assert.Contains(t, p.stderr.String(), "lock lost")
	assert.NoError(t, lock.Release(context.WithoutCancel(t.Context())))
}

// The command sends its whole group what ends other programs, and lives. Its guard,
// which is in that group, must live, too.
func TestTheWardenOutlivesWhatTheCommandDoes(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	file := filepath.Join(t.TempDir(), "oracle")
	p := command(t, f.URLs(), "run", "--ttl", "3s", "x", "--", "sh", "-c",
		`all="HUP INT QUIT TERM USR1 USR2 ALRM"; trap "" $all; for s in $all; do kill -$s 0; done; exec "$0"`, self(t)).role("hold", file).begin(t)
	p.says(t, "held")
	p.signal(t, syscall.SIGSTOP)
	lock, err := l.Acquire(t.Context(), "x")
	assert.NoError(t, err)
	_, err = oracle(file)
	assert.NoError(t, err, "the command still runs, and another has its lock")
	assert.NoError(t, lock.Release(t.Context()))
}

func TestWhatTheCommandLeavesBehindIsEndedBeforeTheRelease(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
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
	_, err = oracle(file)
	assert.NoError(t, err, "it is dead")
	assert.Empty(t, p.stderr.String())
	free(t, l, "x")
}

// What nobody releases expires within a TTL, and the command is dead by then.
func TestRedlockThatIsKilledTakesItsCommandWithIt(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	const ttl = 3 * time.Second
	for name, words := range map[string][]string{"in our group": {self(t)}, "in a group of its own": {"timeout", "60", self(t)}} {
		for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			t.Run(fmt.Sprint(name, ", ", s), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "oracle")
				args := append([]string{"run", "--ttl", ttl.String(), t.Name(), "--"}, words...)
				p := command(t, f.URLs(), args...).role("hold", file).begin(t)
				p.says(t, "held")
				p.signal(t, s)
				stopped := time.Now()
				lock, err := l.Acquire(t.Context(), t.Name())
				tr.NoError(t, err)
				_, err = oracle(file)
				assert.NoError(t, err, "the command still runs, and another has its lock")
				assert.Less(t, time.Since(stopped), ttl+endless/10)
				tr.NoError(t, lock.Release(t.Context()))
			})
		}
	}
}

func TestALockThatIsTakenAwayEndsTheCommand(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	p := command(t, f.URLs(), "run", "--ttl", "1s", "x", "--", self(t)).role("listen", "").begin(t)
	p.says(t, "ready")
	takeAway(t, f, l, "x")
	p.says(t, "got terminated")
	assert.Equal(t, exitLost, p.code(t), "whatever the command itself ends with")
	assert.Contains(t, p.stderr.String(), "lock lost")
	assert.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), p.stderr.String())
}

// takeAway deletes a lock's key on all servers. A quorum was enough for the holder,
// so the others may get theirs a moment later.
func takeAway(t *testing.T, f fleet.Fleet, l *redlock.Locker, name string) {
	t.Helper()
	var value string
	eventually(t, "all hold "+name, func() bool {
		in, err := l.Inspect(t.Context(), name)
		tr.NoError(t, err)
		value = in.Nodes[0].Value
		return value != "" && !slices.ContainsFunc(in.Nodes, func(n redlock.NodeState) bool { return n.Value != value })
	})
	for _, url := range f.URLs() {
		tr.NoError(t, deleteKey(t.Context(), url, name, value))
	}
}
