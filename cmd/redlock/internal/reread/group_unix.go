//go:build unix

package reread

import (
	"os/exec"
	"syscall"
)

// inGroup starts a command in its own process group, so that all processes of a pipe can be killed.
func inGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills a command and its children, except those that left its group.
func killGroup(c *exec.Cmd) error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
