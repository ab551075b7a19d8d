//go:build unix && !linux

package fleet

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// tie keeps the terminal's Ctrl-C from the servers, because the fleet decides when nodes end.
func tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// awaitStop returns at once: the signal takes effect in a moment, and there is no portable
// way to wait for it.
func awaitStop(int) error { return nil }

// isServer reports whether the process shows the port in its title, as servers do, because
// there is no portable way to a process's directory. The port was chosen at random.
func isServer(pid int, _, port string) bool {
	title, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && namesServer(string(title)) && strings.Contains(string(title), ":"+port)
}

// processStart leaves the start out, because there is no portable way to it. So a pid that was
// used again keeps leftovers for as long as the process that has it now lives.
func processStart(pid int) (start string, alive bool) {
	return "0", !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func pidNamespace() string { return "" }
