package serve

import (
	"fmt"
	"net"
	"syscall"
)

// peerOf says which process has connected to a socket.
func peerOf(c *net.UnixConn) (peer string) {
	peer = "a local process"
	raw, err := c.SyscallConn()
	if err != nil {
		return peer
	}
	raw.Control(func(fd uintptr) {
		if by, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			peer = fmt.Sprintf("process %d of user %d", by.Pid, by.Uid)
		}
	})
	return peer
}
