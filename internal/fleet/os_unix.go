//go:build unix

package fleet

import (
	"context"
	"syscall"
)

// Pause stops the process. Its kernel continues to accept connections, and bytes until the sockets'
// buffers are full.
func (p *process) Pause(_ context.Context, i int) error {
	server := p.nodes[i].cmd.Process
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStop(server.Pid)
}

// Resume continues the process.
func (p *process) Resume(_ context.Context, i int) error {
	return p.nodes[i].cmd.Process.Signal(syscall.SIGCONT)
}
