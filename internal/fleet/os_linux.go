package fleet

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// tie ties a server's life to this process's (see spawner), and keeps the terminal's Ctrl-C from
// it, because the fleet decides when nodes end.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// awaitStop waits until the stop signal has taken effect, because a server on another core could
// still answer for a moment after the signal. A process that ends instead also ends the wait, and
// its exit status remains available.
func awaitStop(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}
