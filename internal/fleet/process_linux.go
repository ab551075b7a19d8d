package fleet

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttr ties a server's life to this process's (see spawner), and keeps the
// terminal's Ctrl-C from it: when nodes end is for the fleet to say.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// awaitStop waits until the stop signal has taken effect: on another core the
// server could answer for a moment after the signal was sent. A process
// that ends instead ends the wait too, and stays there to be waited for.
func awaitStop(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// isServer tells whether the process is a server that runs in dir. The command
// line alone would not do: servers replace theirs by a title without the directory.
func isServer(pid int, dir, _ string) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	cmdline, _ := os.ReadFile(proc + "/cmdline")
	cwd, err := os.Readlink(proc + "/cwd")
	return err == nil && cwd == dir && namesServer(string(cmdline))
}
