package serve

import (
	"fmt"
	"syscall"
)

// peerOf names the process that has connected to a socket.
func peerOf(raw syscall.RawConn) (peer string) {
	peer = "a local process"
	raw.Control(func(fd uintptr) {
		if by, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			peer = fmt.Sprintf("process %d of user %d", by.Pid, by.Uid)
		}
	})
	return peer
}
