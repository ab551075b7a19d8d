package fleet

import (
	"os/exec"
	"syscall"
)

// tie keeps the console's Ctrl-C from the servers, because the fleet decides when nodes end.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
