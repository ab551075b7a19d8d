package fleet

import (
	"os"
	"os/exec"
	"syscall"
)

// tie keeps the console's Ctrl-C from the servers, because the fleet decides when nodes end.
func tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags |= syscall.CREATE_NEW_PROCESS_GROUP
}

// isServer returns false, so the sweep ends nothing here, because there is no way to know which
// program a pid belongs to.
func isServer(int, string, string) bool { return false }

// processStart leaves the start out, so a pid that was used again keeps leftovers for as long
// as the process that has it now lives.
func processStart(pid int) (start string, alive bool) {
	p, err := os.FindProcess(pid) // opens the process, so it fails if there is none
	if err != nil {
		return "0", false
	}
	p.Release()
	return "0", true
}

func pidNamespace() string { return "" }
