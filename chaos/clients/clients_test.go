// Package clients_test talks to each client of this folder as chaos does.
package clients_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

// A conversation is with one process of a client.
type conversation struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start starts a client and opens it on servers. It returns its features, too. The TTL is the time for
// which this module's library takes no lock on new servers.
func start(t *testing.T, servers string, command ...string) (*conversation, string) {
	t.Helper()
	c := &conversation{t: t, cmd: exec.CommandContext(t.Context(), command[0], command[1:]...)}
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	c.in, c.out = in, bufio.NewScanner(out)
	ready := strings.Fields(c.ask("open 5000 " + servers))
	require.GreaterOrEqual(t, len(ready), 3, ready)
	require.Equal(t, "ready", ready[0])
	return c, ready[1]
}

// ask returns the line that answers a request.
func (c *conversation) ask(request string) string {
	c.t.Helper()
	_, err := io.WriteString(c.in, request+"\n")
	require.NoError(c.t, err)
	require.True(c.t, c.out.Scan(), "no answer to %q: %v", request, c.out.Err())
	return c.out.Text()
}

// end ends the client's input, and waits for it.
func (c *conversation) end() {
	c.t.Helper()
	require.NoError(c.t, c.in.Close())
	require.NoError(c.t, c.cmd.Wait())
}

func TestEachClientSpeaksTheProtocol(t *testing.T) {
	f := need.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Volatile: true})
	dir := t.TempDir()
	text, err := exec.Command("go", "build", "-o", dir, "./redquorum", "./redsync", "./redislock", "./rueidislock").CombinedOutput()
	require.NoError(t, err, "%s", text)
	python := "/usr/bin/python3" // Debian's, which has Debian's redis-py
	hasRedisPy := exec.Command(python, "-c", "import redis").Run() == nil
	_, err = exec.LookPath("redis-cli")
	hasCLI := err == nil
	for i, c := range []struct {
		command  []string
		best     string
		runnable bool
	}{
		{[]string{filepath.Join(dir, "redquorum")}, "-best", true},
		{[]string{filepath.Join(dir, "redsync")}, "-best", true},
		{[]string{filepath.Join(dir, "redislock")}, "-best", true},
		{[]string{filepath.Join(dir, "rueidislock")}, "-best", true},
		{[]string{python, "redispy.py"}, "--best", hasRedisPy},
		{[]string{"sh", "setnx.sh"}, "--best", hasCLI},
	} {
		for _, command := range [][]string{c.command, append(c.command[:len(c.command):len(c.command)], c.best)} {
			t.Run(strings.ReplaceAll(strings.Join(command, " "), dir+"/", ""), func(t *testing.T) {
				t.Parallel()
				if !c.runnable {
					t.Skip("this machine lacks the library or redis-cli")
				}
				converse(t, f.URLs()[0], fmt.Sprintf("%d-%d", i, len(command)), command)
			})
		}
	}
}

// converse has two processes of a client take two locks of a server, which are named a and b with a
// number that no other client has.
func converse(t *testing.T, url, number string, command []string) {
	addr, a, b := strings.TrimPrefix(url, "redis://"), "a"+number, "b"+number
	one, features := start(t, addr, command...)
	two, _ := start(t, addr, command...)

	granted := "granted"
	if strings.Contains(features, "fence") {
		granted = "granted [1-9][0-9]*"
	}
	assert.Regexp(t, "^"+granted+"$", one.ask("acquire "+a+" 30000"))
	assert.Regexp(t, "^held( [0-9]+)?$", one.ask("held"))
	if strings.Contains(features, "extend") {
		assert.Regexp(t, "^held [0-9]+$", one.ask("extend"))
	}
	assert.Regexp(t, "^failed .", two.ask("acquire "+a+" 100"))
	assert.Regexp(t, "^"+granted+"$", two.ask("acquire "+b+" 30000"))
	assert.Equal(t, "released", one.ask("release"))
	assert.Equal(t, "released", two.ask("release"))
	assert.Regexp(t, "^"+granted+"$", two.ask("acquire "+a+" 30000"))
	one.end()
	two.end() // with its lock, which it gives back

	c, err := redis.DialURL(url)
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool {
		keys, err := redis.Strings(c.Do("KEYS", "*"+a)) // but for the counter of tokens, which ends otherwise
		return err == nil && len(keys) == 0
	}, 20*time.Second, 10*time.Millisecond, "the lock outlives its client")
}
