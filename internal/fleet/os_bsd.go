//go:build unix && !linux

package fleet

import (
	"os/exec"
	"syscall"
)

// tie keeps the terminal's Ctrl-C from the servers, because the fleet decides when nodes end.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// awaitStop returns at once: the signal takes effect in a moment, and there is no portable
// way to wait for it.
func awaitStop(int) error { return nil }
