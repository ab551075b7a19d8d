//go:build unix

package fleet

import (
	"context"
	"syscall"
)

// Pause stops the process: its kernel goes on accepting connections, and bytes until the
// sockets' buffers are full.
func (p *process) Pause(_ context.Context, i int) error {
	n := p.nodes[i]
	if err := n.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStop(n.cmd.Process.Pid)
}

func (p *process) Resume(_ context.Context, i int) error {
	return p.nodes[i].cmd.Process.Signal(syscall.SIGCONT)
}
