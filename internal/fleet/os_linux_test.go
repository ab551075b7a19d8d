package fleet_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// On systems other than Linux, the sweep of the next start ends the servers.
func TestServersDieWithTheirParent(t *testing.T) {
	testenv.NeedRedis(t)
	t.Setenv("TMPDIR", t.TempDir())
	pids := make([]int, 2)
	var f fleet.Fleet
	crash(t, fleet.Process, func(r report) {
		f = given(t, r)
		for i := range pids {
			var err error
			pids[i], err = strconv.Atoi(connect(t, f, i).info("process_id"))
			require.NoError(t, err)
		}
		// A stopped server must also die. Until then its port accepts connections.
		require.NoError(t, syscall.Kill(pids[0], syscall.SIGSTOP))
	})
	for i, pid := range pids {
		if !assert.Eventually(t, func() bool {
			c, err := net.DialTimeout("tcp", addr(f, i), longEnough)
			if err == nil {
				c.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}, longEnough, tick, "server %d", pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// On another core a server could answer for a moment after the signal.
func TestPausedProcessHasStoppedWhenPauseReturns(t *testing.T) {
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1})
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
