//go:build unix

package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

func TestNodesObeyCommandsThatBreakThem(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			testenv.NeedKind(t, kind)
			first := freePorts(t, 3)
			p := command(t, nil, "nodes", "--kind", string(kind), "-n", "3", "--port", strconv.Itoa(first))
			out := newLines()
			p.Stdout = out
			in, err := p.StdinPipe()
			tr.NoError(t, err)
			tr.NoError(t, p.Start())
			defer p.Wait()
			defer p.Process.Signal(os.Interrupt)
			await := func(text string) {
				t.Helper()
				out.await(t.Context(), t, func(all string) bool { return strings.Contains(all, text) })
			}
			await("Interrupt this")
			url := "redis://127.0.0.1:" + strconv.Itoa(first)
			ask(t, url, "SET", "a", "1")
			for command, answer := range map[string]string{
				"help": "kill N ", "fly 1": `"fly" is not a command`, "kill": "kill needs the number of a server, from 1 to 3", "kill 4": "kill needs the number",
				"clock 1 soon": "1: ", "wake 3": "3: it is running, not paused",
			} {
				fmt.Fprintln(in, command)
				await(answer)
			}
			fmt.Fprintln(in, "kill 1\nkill 1\nrestart 1")
			await("1: it is killed already")
			await("1: started, with its data")
			assert.Equal(t, "1", has(t, url, "a"))
			fmt.Fprintln(in, "lose 1")
			await("1: started, without its data")
			assert.Empty(t, has(t, url, "a"))
			fmt.Fprintln(in, "hang 1\nwake 1")
			await("1: hangs")
			await("1: answers again")
			if kind == fleet.Process {
				pids := regexp.MustCompile(`processes are \d+ \d+ (\d+)`).FindStringSubmatch(out.String())
				tr.NotNil(t, pids)
				pid, err := strconv.Atoi(pids[1])
				tr.NoError(t, err)
				tr.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
				await("3: its process has ended")
			}
			tr.NoError(t, in.Close())
			ask(t, url, "PING")
		})
	}
}
