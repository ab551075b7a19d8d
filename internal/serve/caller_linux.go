package serve

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// tellsHalfClose is whether isShut, isOver and unsent know.
const tellsHalfClose = true

// isShut reports whether the other side sends no more.
func isShut(fd uintptr) bool {
	return events(fd)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// isOver reports whether a socket is closed in both directions, or was reset.
func isOver(fd uintptr) bool { return events(fd)&(unix.POLLHUP|unix.POLLERR) != 0 }

// unsent returns how many bytes the other side has not taken: those that it has not acknowledged, over TCP,
// and those that it has not read, over a Unix socket. It returns isReset when the connection was reset, as it
// is by the end of a process that has not read all. Over TCP a reset leaves the number as it was, and over a
// Unix socket it makes it zero.
func unsent(fd uintptr) (left int, isReset bool) {
	left, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) // before the look at the reset, which may make it zero
	if err != nil {
		left = 1 // not known
	}
	return left, events(fd)&unix.POLLERR != 0
}

func events(fd uintptr) int16 {
	of := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	for {
		if _, err := unix.Poll(of, 0); err != unix.EINTR {
			return of[0].Revents
		}
	}
}

// peerOf says which process has connected to a socket.
func peerOf(raw syscall.RawConn) (peer string) {
	peer = "a local process"
	raw.Control(func(fd uintptr) {
		if by, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			peer = fmt.Sprintf("process %d of user %d", by.Pid, by.Uid)
		}
	})
	return peer
}
