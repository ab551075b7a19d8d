package backend

import "os/exec"

func unprivileged(*exec.Cmd, string) error { return nil }
