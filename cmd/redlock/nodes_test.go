package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// freePorts finds n ports in a row that are free. It tries random ports, so that two runs of the
// tests do not find the same ones. It stays below the ports of outgoing connections and of package
// fleet.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		first := 10000 + rand.IntN(9900)
		ports, err := choosePorts(n, first)
		tr.NoError(t, err)
		if portsFree(ports) == nil {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

func TestNodesServeUntilTheyAreInterrupted(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			testenv.NeedKind(t, kind)
			first := freePorts(t, 3)
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			out := newLines()
			var errs bytes.Buffer
			code := make(chan int, 1)
			go func() {
				defer out.Write(nil) // wakes the test if it ends before it should
				code <- run(ctx, []string{"nodes", "--kind", string(kind), "-n", "3", "--port", strconv.Itoa(first)}, out, &errs)
			}()
			out.await(t.Context(), t, func(text string) bool { return strings.Contains(text, "Interrupt this") || len(code) > 0 })
			tr.Contains(t, out.String(), "export REDLOCK_NODES=", errs.String())
			assert.Contains(t, out.String(), "no vote until one\nTTL")
			assert.Equal(t, kind == fleet.Embedded, strings.Contains(out.String(), "speed means nothing"))

			_, urls, _ := strings.Cut(out.String(), "export REDLOCK_NODES=")
			urls, _, _ = strings.Cut(urls, "\n")
			t.Setenv("REDLOCK_NODES", urls)
			_, _, answers := redlockCommand(t, "status", "job", "--dial-timeout", longEnough.String())
			assert.Empty(t, answers, "they answer")
			for i, u := range strings.Split(urls, ",") {
				assert.Equal(t, "redis://127.0.0.1:"+strconv.Itoa(first+i), u)
			}
			interrupt(errors.New("interrupt"))
			assert.Zero(t, <-code, errs.String())
			ports, err := choosePorts(3, first)
			tr.NoError(t, err)
			assert.NoError(t, portsFree(ports), "all ports are free again")
		})
	}
}

func TestNodesNameTheOccupiedPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	tr.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	tr.NoError(t, err)
	code, out, errs := redlockCommand(t, "nodes", "-n", "1", "--port", port)
	assert.Equal(t, exitFailed, code)
	assert.Empty(t, out)
	assert.Contains(t, errs, "port "+port+" of 127.0.0.1 is not free")
	assert.Contains(t, errs, "--port")
	assert.Equal(t, 1, strings.Count(errs, "\n"))
}

func TestTLSFilesWithoutATLSServerHaveNoEffect(t *testing.T) {
	f := startFleet(t, fleet.Embedded, 1)
	code, _, errs := redlockCommand(t, on(f, "status", "--tls-ca", "/no/file")...)
	assert.Zero(t, code, "the file is not read")
	assert.Equal(t, "redlock: --tls-ca: has no effect: no server has a rediss:// URL\n", errs)
	t.Setenv("REDLOCK_TLS_CERT", "cert.pem")
	t.Setenv("REDLOCK_TLS_KEY", "key.pem")
	code, _, errs = redlockCommand(t, on(f, "status")...)
	assert.Zero(t, code)
	assert.Contains(t, errs, "redlock: $REDLOCK_TLS_CERT: has no effect")
	_, _, errs = redlockCommand(t, "status", "--tls-ca", "ca.pem", "--node", "rediss://127.0.0.1:1")
	assert.NotContains(t, errs, "no effect")
}
