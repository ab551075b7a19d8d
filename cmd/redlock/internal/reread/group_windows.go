package reread

import "os/exec"

func inGroup(*exec.Cmd) {}

// killGroup kills a command, but not its children.
func killGroup(c *exec.Cmd) error { return c.Process.Kill() }
