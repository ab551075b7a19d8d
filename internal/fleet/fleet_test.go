package fleet_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

func TestConflictingOptionsAreRefused(t *testing.T) {
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

func TestEachNodeHasItsPersistence(t *testing.T) {
	t.Parallel()
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 4, Persistence: []fleet.Persistence{fleet.None, fleet.Unsynced, fleet.EverySecond, fleet.Always}})
	for i, want := range []string{"no everysec", "yes no", "yes everysec", "yes always"} { // the server's default is everysec
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

func TestServersListenOnFixedPorts(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			ports := freePorts(t, 2)
			opts := fleet.Options{Nodes: 2, Ports: ports}
			f := testenv.Servers(t, kind, opts)
			for i, port := range ports {
				assert.Equal(t, fmt.Sprintf("redis://127.0.0.1:%d", port), f.URLs()[i])
				connect(t, f, i).do("PING")
			}
			_, err := fleet.Start(t.Context(), kind, opts)
			require.ErrorContains(t, err, "port is taken")
			connect(t, f, 0).do("SET", "key", "value") // the failed start must not have harmed the server
		})
	}
}

// freePorts returns ports that no outgoing connection gets, and no other fleet of this process.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for i := range n {
		require.NoError(t, fleet.Options{}.OnPort(i, func(port int) error {
			l, err := net.Listen("tcp", fleet.Loopback(port))
			if err != nil {
				return fleet.ErrPortTaken
			}
			ports = append(ports, port)
			return l.Close()
		}))
		t.Cleanup(func() { fleet.ReleasePort(ports[i]) })
	}
	return ports
}

// TestEmbeddedNodeClosesUnderQuestions: a request that arrives during Close crashes no process.
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
	theirs := testenv.Servers(t, fleet.Embedded, fleet.Options{Nodes: 2})
	f := testenv.Servers(t, fleet.Addrs, fleet.Options{URLs: theirs.URLs()})
	assert.Equal(t, theirs.URLs(), f.URLs())
	ctx := t.Context()
	for op, err := range map[string]error{
		"pause":  f.Pause(ctx, 0),
		"resume": f.Resume(ctx, 0),
		"kill":   f.Kill(ctx, 0),
	} {
		assert.ErrorIs(t, err, fleet.ErrUnsupported, op)
		assert.ErrorContains(t, err, "addrs cannot "+op)
	}
	assert.ErrorIs(t, f.Restart(ctx, 0, fleet.Lost), fleet.ErrUnsupported)
	require.NoError(t, f.Close())
	connect(t, theirs, 0).do("PING")
}

func TestSilentGivenServerIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	theirs := testenv.Servers(t, fleet.Embedded, fleet.Options{Nodes: 3})
	require.NoError(t, theirs.Kill(t.Context(), 0))
	require.NoError(t, theirs.Pause(t.Context(), 1))
	old := miniredis.RunT(t) // this server lacks AUTH, and its error repeats the password
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

func TestAvailableNamesTheMissingProgram(t *testing.T) {
	assert.NoError(t, fleet.Available(fleet.Embedded))
	assert.NoError(t, fleet.Available(fleet.Addrs))
	assert.ErrorContains(t, fleet.Available("podman"), "unknown kind")

	t.Run("no server", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		t.Setenv(fleet.ServerEnv, "")
		assert.ErrorContains(t, fleet.Available(fleet.Process), "redis-server, valkey-server is on PATH")
		_, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{})
		assert.ErrorContains(t, err, "please install")
	})
	t.Run("not the server that was named", func(t *testing.T) {
		t.Setenv(fleet.ServerEnv, filepath.Join(t.TempDir(), "redis-server"))
		assert.ErrorContains(t, fleet.Available(fleet.Process), fleet.ServerEnv, "another server would be tested")
	})
}

// A server that ends at once must be reported at once, with its own error text.
func TestServerThatDiesAtStartIsQuoted(t *testing.T) {
	testenv.NeedRedis(t)
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
