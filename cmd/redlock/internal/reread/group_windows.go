package reread

import "os/exec"

func inGroup(*exec.Cmd) {}

// killGroup kills a command. What it has started is out of reach.
func killGroup(c *exec.Cmd) error { return c.Process.Kill() }
