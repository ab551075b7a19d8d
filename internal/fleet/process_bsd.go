//go:build unix && !linux

package fleet

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childAttr keeps the terminal's Ctrl-C from the servers: when nodes end is for
// the fleet to say.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitStop has nothing to wait with here: the signal takes effect in a moment.
func awaitStop(int) error { return nil }

// isServer knows no portable way to a process's directory, but servers show
// their port in their title, and the port was chosen at random.
func isServer(pid int, _, port string) bool {
	title, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && namesServer(string(title)) && strings.Contains(string(title), ":"+port)
}
