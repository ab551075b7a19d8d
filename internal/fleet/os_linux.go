package fleet

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// tie ties a server's life to this process's (see spawner), and keeps the terminal's Ctrl-C from
// it, because the fleet decides when nodes end.
func tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
}

// awaitStop waits until the stop signal has taken effect, because on another core the server
// could answer for a moment after the signal was sent. A process that ends instead ends the
// wait, too, and stays there to be waited for.
func awaitStop(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// isServer reports whether the process is a server that runs in dir. The command line alone
// would not do, because servers replace theirs by a title without the directory.
func isServer(pid int, dir, _ string) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	cmdline, _ := os.ReadFile(proc + "/cmdline")
	cwd, err := os.Readlink(proc + "/cwd")
	return err == nil && cwd == dir && namesServer(string(cmdline))
}

// processStart returns the process's start in clock ticks since boot, and whether it lives. A
// zombie does not, because nothing runs in it any more.
func processStart(pid int) (start string, alive bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		// ESRCH: it ended while being read. Any other error says nothing; when in
		// doubt, it lives.
		return "0", !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
	}
	// The name, second and in parentheses, may hold blanks and parentheses.
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	fields := strings.Fields(string(rest)) // the state, field 3 of proc(5), comes first
	if len(fields) < 20 {
		return "0", true
	}
	return fields[19], fields[0] != "Z" && fields[0] != "X"
}

func pidNamespace() string {
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return ns
}
