package fleet_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

func TestOptionsThatContradict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind fleet.Kind
		opts fleet.Options
		says string
	}{
		{"podman", fleet.Options{}, `unknown kind "podman"`},
		{fleet.Embedded, fleet.Options{Nodes: -1}, "Nodes = -1"},
		{fleet.Embedded, fleet.Options{Nodes: 1000}, "Nodes = 1000"},
		{fleet.Process, fleet.Options{Nodes: 2, Ports: []int{7001}}, "one a node, and there are 2"},
		{fleet.Process, fleet.Options{Nodes: 2, Persistence: []fleet.Persistence{fleet.None}}, "one a node, and there are 2"},
		{fleet.Process, fleet.Options{URLs: []string{"redis://:secret@h"}}, "option URLs is for kind addrs"},
		{fleet.Addrs, fleet.Options{}, "at least one"},
		{fleet.Addrs, fleet.Options{URLs: []string{"http://h"}}, `URL 1: scheme "http"`},
		{fleet.Addrs, fleet.Options{URLs: []string{"redis://:secret@h:port"}}, "cannot be parsed"},
	} {
		f, err := fleet.Start(t.Context(), c.kind, c.opts)
		require.ErrorContains(t, err, c.says)
		assert.Nil(t, f)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestEachNodeWritesWhatItWasTold(t *testing.T) {
	t.Parallel()
	f := need.Servers(t, fleet.Process, fleet.Options{Nodes: 4, Persistence: []fleet.Persistence{fleet.None, fleet.Unsynced, fleet.EverySecond, fleet.Always}})
	for i, want := range []string{"no everysec", "yes no", "yes everysec", "yes always"} { // everysec is the server's default
		c := connect(t, f, i)
		var got []string
		for _, name := range []string{"appendonly", "appendfsync"} {
			setting, err := redis.Strings(c.Do("CONFIG", "GET", name))
			require.NoError(t, err)
			got = append(got, setting[1])
		}
		assert.Equal(t, want, strings.Join(got, " "), "node %d", i)
	}
	assert.ErrorIs(t, f.Restart(t.Context(), 0, fleet.Kept), fleet.ErrUnsupported)
	for i := range 4 {
		assert.NoError(t, f.Restart(t.Context(), i, fleet.Lost))
	}
	for i := 1; i < 4; i++ {
		assert.NoError(t, f.Restart(t.Context(), i, fleet.Kept))
	}
}

func TestFixedPorts(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process, fleet.Docker} {
		t.Run(string(kind), func(t *testing.T) {
			ports := freePorts(t, 2)
			opts := fleet.Options{Nodes: 2, Ports: ports}
			f := need.Servers(t, kind, opts)
			for i, port := range ports {
				assert.Equal(t, fmt.Sprintf("redis://127.0.0.1:%d", port), f.URLs()[i])
				connect(t, f, i).do("PING")
			}
			_, err := fleet.Start(t.Context(), kind, opts)
			require.ErrorContains(t, err, "port is taken")
			connect(t, f, 0).do("SET", "key", "value") // the failed start must not have harmed it
		})
	}
}

func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// With published ports a cut would look like a crash, so it is refused; all
// else works as with addresses of their own.
func TestPublishedDockerPorts(t *testing.T) {
	f := need.Servers(t, fleet.Docker, fleet.Options{Nodes: 1, Ports: freePorts(t, 1)})
	err := f.Disconnect(t.Context(), 0)
	require.ErrorIs(t, err, fleet.ErrUnsupported)
	assert.ErrorContains(t, err, "published")
	require.ErrorIs(t, f.Reconnect(t.Context(), 0), fleet.ErrUnsupported)

	c := connect(t, f, 0)
	c.do("SET", "key", "value")
	require.NoError(t, f.Pause(t.Context(), 0))
	c.send("GET", "key")
	c.silent("a paused node")
	require.NoError(t, f.Resume(t.Context(), 0))
	_, err = c.Receive()
	require.NoError(t, err)

	require.NoError(t, f.Kill(t.Context(), 0))
	_, err = net.DialTimeout("tcp", addr(f, 0), longEnough)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Kept))
	assert.Equal(t, "value", connect(t, f, 0).str("GET", "key"))
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Lost))
	assert.Nil(t, connect(t, f, 0).do("GET", "key"))
}

// TestEmbeddedNodeClosesUnderQuestions: a question that arrives during Close ends nobody's process.
func TestEmbeddedNodeClosesUnderQuestions(t *testing.T) {
	t.Parallel()
	for range 20 {
		f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 1})
		require.NoError(t, err)
		var asking, asked sync.WaitGroup
		for range 8 {
			c := connect(t, f, 0)
			asked.Add(1)
			asking.Go(func() {
				for i := 0; c.Send("INFO", "stats") == nil && c.Flush() == nil; i++ {
					if _, err := c.Receive(); err != nil {
						break
					}
					if i == 0 {
						asked.Done()
					}
				}
			})
		}
		asked.Wait()
		require.NoError(t, f.Close())
		asking.Wait()
	}
}

func TestGivenServersAreLeftAlone(t *testing.T) {
	t.Parallel()
	theirs := need.Servers(t, fleet.Embedded, fleet.Options{Nodes: 2})
	f := need.Servers(t, fleet.Addrs, fleet.Options{URLs: theirs.URLs()})
	assert.Equal(t, theirs.URLs(), f.URLs())
	ctx := t.Context()
	for op, err := range map[string]error{
		"pause":      f.Pause(ctx, 0),
		"resume":     f.Resume(ctx, 0),
		"kill":       f.Kill(ctx, 0),
		"disconnect": f.Disconnect(ctx, 0),
		"reconnect":  f.Reconnect(ctx, 0),
	} {
		assert.ErrorIs(t, err, fleet.ErrUnsupported, op)
		assert.ErrorContains(t, err, "addrs cannot "+op)
	}
	assert.ErrorIs(t, f.Restart(ctx, 0, fleet.Lost), fleet.ErrUnsupported)
	require.NoError(t, f.Close())
	connect(t, theirs, 0).do("PING")
}

func TestGivenServerThatDoesNotAnswerIsNamedWithoutPassword(t *testing.T) {
	t.Parallel()
	theirs := need.Servers(t, fleet.Embedded, fleet.Options{Nodes: 3})
	require.NoError(t, theirs.Kill(t.Context(), 0))
	require.NoError(t, theirs.Pause(t.Context(), 1))
	old := miniredis.RunT(t) // it does not know AUTH, and repeats the password
	old.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		c.WriteError(fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", cmd, args))
		return true
	})
	var urls []string
	for _, at := range []string{addr(theirs, 0), addr(theirs, 1), addr(theirs, 2), old.Addr()} {
		urls = append(urls, "redis://user:secret@"+at+"?password=secret")
	}
	f, err := fleet.Start(t.Context(), fleet.Addrs, fleet.Options{URLs: urls})
	require.Error(t, err)
	assert.Nil(t, f)
	assert.ErrorContains(t, err, addr(theirs, 0)+" does not answer PING")
	assert.ErrorContains(t, err, "refused")
	assert.ErrorContains(t, err, addr(theirs, 1)+" does not answer PING")
	assert.ErrorContains(t, err, "node 2", "miniredis without users refuses the password")
	assert.ErrorContains(t, err, old.Addr()+" does not answer PING: it does not accept")
	assert.NotContains(t, err.Error(), "secret")
}

func TestAvailableSaysWhatIsMissing(t *testing.T) {
	assert.NoError(t, fleet.Available(t.Context(), fleet.Embedded))
	assert.NoError(t, fleet.Available(t.Context(), fleet.Addrs))
	assert.ErrorContains(t, fleet.Available(t.Context(), "podman"), "unknown kind")

	t.Run("no server", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		t.Setenv(fleet.ServerEnv, "")
		assert.ErrorContains(t, fleet.Available(t.Context(), fleet.Process), "redis-server, valkey-server is on PATH")
		_, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{})
		assert.ErrorContains(t, err, "please install")
	})
	t.Run("not the server that was named", func(t *testing.T) {
		t.Setenv(fleet.ServerEnv, filepath.Join(t.TempDir(), "redis-server"))
		assert.ErrorContains(t, fleet.Available(t.Context(), fleet.Process), fleet.ServerEnv, "another server would be tested")
	})
}

// A server that ends at once must be reported at once, with its own words.
func TestServerThatDiesAtStartIsQuoted(t *testing.T) {
	need.Redis(t)
	if os.PathSeparator == '\\' {
		t.Skip("needs a shell script as the server")
	}
	server := filepath.Join(t.TempDir(), "redis-server")
	t.Setenv(fleet.ServerEnv, server)
	t.Setenv("TMPDIR", t.TempDir())
	script := "#!/bin/sh\necho no memory left\nexit 3\n"
	require.NoError(t, os.WriteFile(server, []byte(script), 0o700))
	_, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: 2})
	require.ErrorContains(t, err, "no memory left")
	require.ErrorContains(t, err, "exit status 3")
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
	assert.Empty(t, fleetDirs(t, os.TempDir()), "a failed start must leave nothing")
}
