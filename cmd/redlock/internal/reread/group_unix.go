//go:build unix

package reread

import (
	"os/exec"
	"syscall"
)

// inGroup starts a command in a process group of its own, so that all of a pipe can be killed.
func inGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills a command and what it has started, except what left its group.
func killGroup(c *exec.Cmd) error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
