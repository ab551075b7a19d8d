//go:build unix

package hold

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/examples/internal/stage"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"
)

// limit is generous: each step takes seconds on an idle machine.
const limit = time.Minute

// programs lists the examples by interpreter.
var programs = map[string]string{"python3": "hold.py", "node": "hold.mjs", "php": "hold.php", "ruby": "hold.rb", "sh": "hold.sh"}

// TestEachLanguageHoldsALock: other clients are refused during the work, and the lock is free
// afterwards. A lost lock ends the work.
func TestEachLanguageHoldsALock(t *testing.T) {
	f := testenv.Servers(t, fleet.Embedded, fleet.Options{Nodes: 3})
	bin := t.TempDir()
	require.NoError(t, testenv.BuildCommand(bin))
	l := stage.Locker(t, f.URLs())
	for interpreter, file := range programs {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			testenv.NeedProgram(t, interpreter)
			start := func(seconds string) *stage.Program {
				return stage.Start(t, interpreter, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "REDLOCK_NODES=" + strings.Join(f.URLs(), ","),
					"REDLOCK_MEMORY_GUARD=false", "REDLOCK_NODE_TIMEOUT=10s", "REDLOCK_DIAL_TIMEOUT=20s", "REDLOCK_TTL=15s", "REDLOCK_CONFIG=/dev/null"},
					interpreter, file, interpreter, seconds)
			}
			p := start("1")
			p.Says("^working with token [1-9][0-9]+$")
			p.Says("^done$")
			p.Ends(0)
			lock, err := l.TryAcquire(t.Context(), p.Name)
			require.NoError(t, err, "it is free")

			p = start("1")
			require.NoError(t, lock.Release(t.Context()))
			p.Says("working") // the work starts after the release
			p.Says("done")
			p.Ends(0)

			p = start("600")
			p.Says("working")
			_, err = l.TryAcquire(t.Context(), p.Name)
			require.ErrorIs(t, err, redlock.ErrHeld)
			in, err := l.Inspect(t.Context(), p.Name)
			require.NoError(t, err)
			value, _, _ := in.Holder()
			require.NoError(t, l.ReleaseValue(t.Context(), p.Name, value))
			p.Says("^stopped$")
			p.Ends(79)
		})
	}
}

// fakes are programs that replace redlock. The first one simulates a program that was stopped: the
// lock expired before the lines were written. The second one uses another clock.
var fakes = map[string]string{
	"an old line":   `echo "{\"event\":\"renewed\",\"remaining_ms\":600000,\"until_ms\":$((now - 1))}"`,
	"another clock": `echo "{\"event\":\"renewed\",\"remaining_ms\":600000,\"until_ms\":$((now + 9999999))}"`,
}

// TestEachLanguageStopsByTheCommonClock: a program does not count from the time at which it read a
// line.
func TestEachLanguageStopsByTheCommonClock(t *testing.T) {
	t.Parallel()
	testenv.NeedProgram(t, "sh")
	if _, err := os.Stat("/proc/uptime"); err != nil {
		t.Skip("no uptime for a shell here")
	}
	for name, line := range fakes {
		bin := t.TempDir()
		fake := "#!/bin/sh\nread -r up _ </proc/uptime\nnow=$((${up%.*} * 1000))\n" +
			`echo "{\"event\":\"held\",\"fence\":5,\"remaining_ms\":600000,\"until_ms\":$((now + 600000))}"` + "\nsleep 0.3\n" + line + "\ncat >/dev/null\nexit 79\n"
		require.NoError(t, os.WriteFile(filepath.Join(bin, "redlock"), []byte(fake), 0o755))
		for interpreter, file := range programs {
			t.Run(name+", "+interpreter, func(t *testing.T) {
				t.Parallel()
				if name == "another clock" && (interpreter == "python3" || interpreter == "ruby") {
					t.Skip("it reads the same clock by the same call")
				}
				testenv.NeedProgram(t, interpreter)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				p := exec.CommandContext(ctx, interpreter, file, "x", "600")
				p.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
				p.WaitDelay = time.Second
				out, _ := p.Output() // the exit code is checked
				assert.Equal(t, "working with token 5\nstopped\n", string(out))
				assert.Equal(t, 79, p.ProcessState.ExitCode())
			})
		}
	}
}

// TestEachLanguageChecksItsArguments: a program checks them before it takes a lock.
func TestEachLanguageChecksItsArguments(t *testing.T) {
	t.Parallel()
	for interpreter, file := range programs {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			testenv.NeedProgram(t, interpreter)
			for _, args := range [][]string{nil, {"nightly"}, {"nightly", "1", "more"}} {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				p := exec.CommandContext(ctx, interpreter, append([]string{file}, args...)...)
				said, err := p.CombinedOutput()
				var exit *exec.ExitError
				require.ErrorAs(t, err, &exit)
				assert.Equal(t, 64, exit.ExitCode())
				assert.Equal(t, "usage: "+file+" NAME SECONDS\n", string(said))
			}
		})
	}
}
