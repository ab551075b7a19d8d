//go:build unix

package fleet

import (
	"context"
	"syscall"
)

// Pause stops the process: its kernel goes on accepting connections, and bytes until the
// sockets' buffers are full.
func (c *children) Pause(_ context.Context, i int) error {
	p := c.Process(i)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStop(p.Pid)
}

// Resume lets it go on.
func (c *children) Resume(_ context.Context, i int) error {
	return c.Process(i).Signal(syscall.SIGCONT)
}
