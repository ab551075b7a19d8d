//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

func TestSignalsGoToTheCommand(t *testing.T) {
	t.Parallel()
	f := five(t)
	for _, s := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := command(t, f.URLs(), "run", s.String(), "--", self(t)).role("listen", "").begin(t)
			p.says(t, "ready")
			p.signal(t, s)
			p.says(t, "got "+s.String())
			assert.Equal(t, 5, p.code(t))
		})
	}
}

func TestASignalEndsTheWaiting(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	lock, err := l.Acquire(t.Context(), "x")
	tr.NoError(t, err)
	for _, s := range endingSignals {
		p := command(t, f.URLs(), "run", "-v", "x", "--", "echo", "ran").begin(t)
		eventually(t, "it waits", func() bool { return strings.Contains(p.stderr.String(), "held by another") })
		p.signal(t, s)
		assert.Equal(t, 128+int(s), p.code(t))
		out, _ := p.lines.ReadString('\n')
		assert.Empty(t, out)
	}
	tr.NoError(t, lock.Release(t.Context()))
	free(t, l, "x")
}

func TestASignalThatWasIgnoredStaysSo(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs())
	path := p.Path
	p.Path, p.Args = "/bin/sh", []string{"sh", "-c", `trap "" HUP; exec "$0" run x -- sh -c 'echo ready; read x; echo on'`, path}
	in, err := p.StdinPipe()
	tr.NoError(t, err)
	p.begin(t)
	p.says(t, "ready")
	p.signal(t, syscall.SIGHUP)
	_, err = in.Write([]byte("go\n"))
	tr.NoError(t, err)
	p.says(t, "on")
	assert.Zero(t, p.code(t))
}
