package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

func TestACommandThatIsStoppedCanBeEnded(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "x", "--", "sh", "-c", "echo $$; kill -STOP $$").begin(t)
	p.WaitDelay = endless / 10
	pid, err := p.lines.ReadString('\n')
	tr.NoError(t, err)
	eventually(t, "it is stopped", func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
		tr.NoError(t, err)
		return strings.Contains(string(stat), ") T ")
	})
	p.signal(t, syscall.SIGTERM)
	assert.Equal(t, 128+int(syscall.SIGTERM), p.code(t))
	free(t, client(t, f), "x")
}
