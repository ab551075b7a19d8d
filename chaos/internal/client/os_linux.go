package client

import (
	"os"

	"golang.org/x/sys/unix"
)

// awaitStop waits until the stop signal has taken effect, or the process has ended.
func awaitStop(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}
