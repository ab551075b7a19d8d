package client_test

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/history"
)

// answering is a shell program that answers open, and then each request by what the cases say.
func answering(cases string) string {
	return `while read -r request _; do case $request in open) echo "ready test" ;; ` + cases + ` esac; done`
}

// Each program breaks the protocol in one way. The client ends by itself, and says in which.
func TestAProgramThatBreaksTheProtocolEndsTheRunWithTheReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ what, program, says string }{
		{"garbage at first", `read x; echo hello; cat`, `answered "open" by "hello"`},
		{"nothing at all", `exec sleep 600`, `did not answer "open" within`},
		{"an end at once", `exit 3`, `ended its output instead of answering "open"`},
		{"a line without end", `read x; head -c 100000 /dev/zero | tr '\0' x; exec sleep 600`, `a line of more than 1024 bytes`},
		{"two lines for one", `read x; echo "ready test"; echo held; exec sleep 600`, `"held"`},
		{"garbage for a lock", answering(`acquire) echo yes ;;`), `answered "acquire" by "yes"`},
		{"a death with a lock", answering(`acquire) echo granted ;; held) kill -9 $$ ;;`), `instead of answering "held"`},
		{"a time without end", answering(`acquire) echo granted ;; held) echo held 99999999999 ;;`), `from 1 to 99999999`},
		{"garbage for a release", answering(`acquire) echo granted ;; held) echo held 900 ;; release) echo gone ;;`), `answered "release" by "gone"`},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			config := lonely(t)
			config.Other, config.Patience = c.program, time.Second
			config.TTL, config.Work = 100*time.Millisecond, [2]time.Duration{0, 0}
			broken := make(chan struct{})
			p, err := client.Start(config, history.NewLog(io.Discard), func() { close(broken) })
			require.NoError(t, err)
			select {
			case <-broken:
			case <-time.After(6 * limit):
				t.Error("the client goes on")
			}
			assert.ErrorContains(t, p.Stop(limit), c.says)
		})
	}
}

func TestAProgramThatDoesNotEndWellIsReported(t *testing.T) {
	t.Parallel()
	const refusing = `while read -r request _; do case $request in open) echo ready test ;; *) echo failed held ;; esac; done; `
	for program, says := range map[string]string{
		refusing + `exit 4`:         "ended badly: exit status 4",
		refusing + `exec sleep 600`: "did not end within 1s of the end of its input",
	} {
		config := lonely(t)
		config.Other, config.Patience = program, time.Second
		log := history.NewLog(io.Discard)
		p, err := client.Start(config, log, func() {})
		require.NoError(t, err)
		until(t, log, history.Failed)
		assert.ErrorContains(t, p.Stop(6*limit), says)
	}
}

// A program that went on while its client is paused would answer for one that hangs.
func TestFaultsHitTheProgramWithItsClient(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the state of a process is in /proc on Linux only")
	}
	file := filepath.Join(t.TempDir(), "pid")
	config := lonely(t)
	config.Patience = limit
	config.Other = `echo $$ >` + file + `; ` + answering(`acquire) echo failed held ;;`)
	log := history.NewLog(io.Discard)
	p, err := client.Start(config, log, func() {})
	require.NoError(t, err)
	until(t, log, history.Failed)
	pid, err := os.ReadFile(file)
	require.NoError(t, err)
	is := func(states string) func() bool {
		return func() bool {
			text, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
			fields := strings.Fields(string(text))
			return err != nil && strings.Contains(states, "-") || err == nil && strings.Contains(states, fields[2])
		}
	}
	require.NoError(t, p.Pause())
	require.Eventually(t, is("T"), limit, time.Millisecond)
	require.NoError(t, p.Resume())
	require.Eventually(t, is("SRD"), limit, time.Millisecond)
	require.NoError(t, p.Pause())
	require.NoError(t, p.Kill())
	require.Eventually(t, is("-Z"), limit, time.Millisecond)
}
