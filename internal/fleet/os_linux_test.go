package fleet_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	need "github.com/redquorum/redquorum/internal/need"
)

// Elsewhere than on Linux the next start's sweep ends the servers.
func TestServersDieWithTheirParent(t *testing.T) {
	need.Redis(t)
	t.Setenv("TMPDIR", t.TempDir())
	var pids []int
	crash(t, fleet.Process, func(r report) {
		pids = serverPids(t, given(t, r))
		// A stopped server must die too.
		require.NoError(t, syscall.Kill(pids[0], syscall.SIGSTOP))
	})
	for _, pid := range pids {
		if !assert.Eventually(t, func() bool { return !fleet.Alive(pid) }, longEnough, tick, "server %d", pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func serverPids(t *testing.T, f fleet.Fleet) (pids []int) {
	t.Helper()
	for i := range f.URLs() {
		pid, err := strconv.Atoi(connect(t, f, i).info("process_id"))
		require.NoError(t, err)
		require.True(t, fleet.Alive(pid))
		pids = append(pids, pid)
	}
	return pids
}

// On another core a server could answer for a moment after it was sent the signal.
func TestPausedProcessHasStoppedWhenPauseReturns(t *testing.T) {
	need.Redis(t)
	f := start(t, fleet.Process, fleet.Options{Nodes: 1})
	c := connect(t, f, 0)
	stat := fmt.Sprintf("/proc/%s/stat", c.info("process_id"))
	for range 50 {
		for range 1000 {
			require.NoError(t, c.Send("INCR", "counter"))
		}
		require.NoError(t, c.Flush()) // keeps it busy
		require.NoError(t, f.Pause(t.Context(), 0))
		text, err := os.ReadFile(stat)
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(text), ") ")
		require.Equal(t, "T", rest[:1], "the state in %s", stat)
		require.NoError(t, f.Resume(t.Context(), 0))
		for range 1000 {
			_, err := c.Receive()
			require.NoError(t, err)
		}
	}
}
