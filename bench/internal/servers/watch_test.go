package servers

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
)

func TestErrorsDoNotShowPasswords(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"http://me:secret@h", "secret@h", "redis://me:secret@h:port", "redis://me:sec%ret@h",
		"redis://me:secret@127.0.0.1:1", "unix://me:secret@/nowhere/secretless",
	} {
		_, err := Dial(context.Background(), []string{raw})
		require.ErrorContains(t, err, "servers: ", raw)
		assert.NotContains(t, err.Error(), "secret@")
		assert.NotContains(t, err.Error(), "me:")
		assert.NotContains(t, err.Error(), "sec%ret")
	}
}

// No server here listens on a socket, so that one is put before a node.
func TestNodesOnUnixSocketsAreAsked(t *testing.T) {
	t.Parallel()
	f, _ := start(t, fleet.Process, 1)
	dir, err := os.MkdirTemp("", "bench") // a test's own may be too long for a socket
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	socket, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer socket.Close()
	serving.Go(func() {
		client, err := socket.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", strings.TrimPrefix(f.URLs()[0], "redis://"))
		if err != nil {
			return
		}
		serving.Go(func() { io.Copy(client, server) })
		io.Copy(server, client)
		server.Close()
	})

	c := client(t, f, 0)
	do(t, c, "SELECT", 2)
	do(t, c, "SET", "bench:key", "value")
	w, err := Dial(t.Context(), []string{"unix://" + filepath.ToSlash(socket.Addr().String()) + "?db=2"})
	require.NoError(t, err)
	defer w.Close()
	n, err := w.countLocks(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}
