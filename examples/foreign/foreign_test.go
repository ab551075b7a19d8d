//go:build linux

package foreign

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/examples/internal/stage"
	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"
)

const (
	limit = time.Minute // generous, because each step takes seconds on an idle machine
	long  = "60000"     // a TTL that does not end during a test
	name  = "job"
)

// programs lists the examples with the program that each needs on the PATH.
var programs = map[string]string{"lock.py": "python3", "lock.sh": "redis-cli"}

// A client runs an example against three servers.
type client struct {
	file    string
	servers fleet.Fleet
	between string // separator of the URLs
}

// start starts the example, which ends without a signal.
func (c client) start(t *testing.T, seconds, ttl string) *stage.Program {
	t.Helper()
	env := []string{"REDLOCK_NODES=" + strings.Join(c.servers.URLs(), c.between), "LOCK_TIMEOUT=60"} // a busy machine must not look like an outage
	return stage.Start(t, name, env, "./"+c.file, name, seconds, ttl)
}

// TestServersMustMatchTheURLs: a lock in another database excludes no client.
func TestServersMustMatchTheURLs(t *testing.T) {
	t.Parallel()
	for file, program := range programs {
		testenv.NeedProgram(t, program)
		p := exec.Command("./"+file, name, "0", long)
		p.Env = append(os.Environ(), "REDLOCK_NODES=redis://127.0.0.1:1?db=3")
		_ = p.Run() // the exit code is checked
		assert.Equal(t, 64, p.ProcessState.ExitCode(), file)
	}
}

// end reads the rest of the example's output, and returns its exit code.
func end(p *stage.Program) int {
	for range p.Lines {
	}
	p.Cmd.Wait() // the exit code is checked
	return p.Cmd.ProcessState.ExitCode()
}

// do sends a command to one server.
func (c client) do(t *testing.T, i int, command string, args ...any) any {
	t.Helper()
	conn, err := redis.DialURL(c.servers.URLs()[i])
	require.NoError(t, err)
	defer conn.Close()
	answer, err := conn.Do(command, args...)
	require.NoError(t, err)
	return answer
}

// TestPlainLocksAndRedlockExcludeEachOther tests each language.
func TestPlainLocksAndRedlockExcludeEachOther(t *testing.T) {
	t.Parallel()
	testenv.NeedRedis(t)
	for file, program := range programs {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			testenv.NeedProgram(t, program)
			servers := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 3, Volatile: true})
			theirs := client{file, servers, ","}
			ours := stage.Locker(t, servers.URLs())

			lock, err := ours.TryAcquire(t.Context(), name)
			require.NoError(t, err)
			p := theirs.start(t, "0", long)
			assert.Equal(t, 75, end(p), "ours is held")
			require.NoError(t, lock.Extend(t.Context()), "a refused client leaves it alone")
			require.NoError(t, lock.Release(t.Context()))

			p = theirs.start(t, "6", long)
			p.Says("^working$")
			_, err = ours.TryAcquire(t.Context(), name)
			require.ErrorIs(t, err, redlock.ErrHeld)
			lock, err = ours.Acquire(t.Context(), name)
			require.NoError(t, err, "we wait until theirs is released")
			assert.Equal(t, 0, end(p))
			require.NoError(t, lock.Release(t.Context()))

			for i := range 2 {
				theirs.do(t, i, "SET", name, "another's", "PX", limit.Milliseconds())
			}
			theirs.between = " " // redlock accepts this separator, too
			p = theirs.start(t, "0", long)
			assert.Equal(t, 75, end(p), "one of three servers is no majority")
			assert.Nil(t, theirs.do(t, 2, "GET", name), "and its vote is given back")
			assert.Equal(t, []byte("another's"), theirs.do(t, 0, "GET", name))
			for i := range 2 {
				theirs.do(t, i, "DEL", name)
			}

			p = theirs.start(t, "600", "8000")
			p.Says("^working$")
			for i := range 3 {
				theirs.do(t, i, "SET", name, "another's", "PX", limit.Milliseconds())
			}
			assert.Equal(t, 79, end(p), "the work ends with its lock")
			for i := range 3 {
				assert.Equal(t, []byte("another's"), theirs.do(t, i, "GET", name), i)
				theirs.do(t, i, "DEL", name)
			}

			if file == "lock.py" { // lock.py extends its lock
				p = theirs.start(t, "10", "9000")
				assert.Equal(t, 0, end(p), "the work may outlast the TTL")

				for { // on a busy machine the work may end before the program is stopped
					p = theirs.start(t, "6", "8000")
					p.Says("^working$")
					require.NoError(t, p.Signal(syscall.SIGSTOP))
					if theirs.do(t, 0, "GET", name) != nil {
						break
					}
					require.NoError(t, p.Signal(syscall.SIGCONT))
					require.Equal(t, 0, end(p))
				}
				for i := range 3 { // the keys expire one after another, and two are a majority
					require.Eventually(t, func() bool { return theirs.do(t, i, "GET", name) == nil }, limit, 10*time.Millisecond)
				}
				require.NoError(t, p.Signal(syscall.SIGCONT))
				assert.Equal(t, 79, end(p), "the lock was lost in the last step of the work")
			}

			require.NoError(t, servers.Kill(t.Context(), 0))
			p = theirs.start(t, "0", long)
			assert.Equal(t, 0, end(p), "two of three servers are a majority")
		})
	}
}

// TestScriptsOnThePageCompare: readers copy the scripts, so each script compares the value before
// it changes a key.
func TestScriptsOnThePageCompare(t *testing.T) {
	t.Parallel()
	servers := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Volatile: true})
	server := client{servers: servers}
	text, err := os.ReadFile("../../docs/KEYS.md")
	require.NoError(t, err)
	var scripts []string
	for _, code := range (documents.Document{Text: string(text)}).Codes() {
		if code.Language == "lua" {
			scripts = append(scripts, code.Text)
		}
	}
	require.Len(t, scripts, 2)
	release, extend := scripts[0], scripts[1]
	server.do(t, 0, "SET", name, "value", "PX", 60_000)
	assert.EqualValues(t, 0, server.do(t, 0, "EVAL", release, 1, name, "another"))
	assert.EqualValues(t, 0, server.do(t, 0, "EVAL", extend, 1, name, "another", 120_000))
	assert.LessOrEqual(t, server.do(t, 0, "PTTL", name), int64(60_000))
	assert.EqualValues(t, 1, server.do(t, 0, "EVAL", extend, 1, name, "value", 120_000))
	assert.Greater(t, server.do(t, 0, "PTTL", name), int64(60_000))
	assert.EqualValues(t, 1, server.do(t, 0, "EVAL", release, 1, name, "value"))
	assert.EqualValues(t, 0, server.do(t, 0, "EXISTS", name))
}
