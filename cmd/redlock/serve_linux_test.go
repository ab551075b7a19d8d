package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/long"
)

// TestServeManyConnections at once, half of which send half a head: memory is bounded, others are
// served, and all is given back.
func TestServeManyConnections(t *testing.T) {
	t.Parallel()
	n := 300
	if long.Enabled() {
		var limit syscall.Rlimit
		tr.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
		n = int(min(9_900, limit.Cur-500)) // of the 10,000 that there may be
	}
	f := startFleet(t, fleet.Embedded, 3)
	path := filepath.Join(t.TempDir(), "s")
	s := startServe(t, f, "--listen", "unix:"+path)
	s.take("before")
	descriptors := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Process.Pid))
		tr.NoError(t, err)
		return len(all)
	}
	before := descriptors()
	conns := make([]net.Conn, n)
	for i := range conns {
		var err error
		conns[i], err = net.Dial("unix", path)
		for errors.Is(err, syscall.EAGAIN) { // as many as the kernel keeps wait to be accepted
			time.Sleep(time.Millisecond)
			conns[i], err = net.Dial("unix", path)
		}
		tr.NoError(t, err)
		defer conns[i].Close()
		fmt.Fprint(conns[i], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"[:20+i%2*14])
	}
	tr.Eventually(t, func() bool { return descriptors() >= before+n/2 }, endless, 10*time.Millisecond)
	assert.Equal(t, http.StatusCreated, s.ask("POST", "/v1/locks", `{"name":"meanwhile"}`).status)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Process.Pid))
	tr.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kilobytes int
			fmt.Sscan(text, &kilobytes)
			assert.Less(t, kilobytes, 60_000+n*40, "kB at most")
			t.Logf("%d connections, %d kB", n, kilobytes)
		}
	}
	for _, c := range conns {
		tr.NoError(t, c.Close())
	}
	assert.Eventually(t, func() bool { return descriptors() <= before+2 }, endless, 10*time.Millisecond)
}
