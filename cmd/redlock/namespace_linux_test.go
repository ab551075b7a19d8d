package main

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

// There the process group that we were started in has no number. What waits for the
// command's group to become empty must not wait for the warden.
func TestRedlockInAPIDNamespaceOfItsOwnEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "--ttl", "10m", "x", "--", "sh", "-c", "exit 4")
	p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	err := p.Start()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("no PID namespaces for us here")
	}
	tr.NoError(t, err)
	assert.Equal(t, 4, p.code(t))
	assert.Empty(t, p.stderr.String())
	free(t, client(t, f), "x")
}
