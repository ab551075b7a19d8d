//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

func TestASignalReachesACommandThatLeftItsGroup(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "x", "--", self(t)).role("leave", "").begin(t)
	p.WaitDelay = endless / 10
	p.says(t, "held")
	p.signal(t, syscall.SIGTERM)
	assert.Equal(t, 128+int(syscall.SIGTERM), p.code(t))
	free(t, client(t, f), "x")
}

func TestACommandThatLeftItsGroupEndsWithItsLock(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	p := command(t, f.URLs(), "run", "--ttl", "1s", "x", "--", self(t)).role("leave-deaf", "").begin(t)
	p.WaitDelay = endless / 10
	p.says(t, "held")
	takeAway(t, f, l, "x")
	assert.Equal(t, exitLost, p.code(t))
}

func TestAReaderOfStandardErrorThatLeavesEndsNothing(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "-v", "x", "--", "sh", "-c", "exit 4")
	read, write, err := os.Pipe()
	tr.NoError(t, err)
	defer write.Close()
	tr.NoError(t, read.Close())
	p.Cmd.Stderr = write
	tr.NoError(t, p.Start())
	assert.Equal(t, 4, p.code(t))
	free(t, client(t, f), "x")
}
