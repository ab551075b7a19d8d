//go:build unix && !linux

package job

import "golang.org/x/sys/unix"

// machineClock is the same for all processes. On macOS it keeps running while the machine sleeps.
const machineClock = unix.CLOCK_MONOTONIC

// adoptOrphans does nothing, because the init process waits for orphans here.
func adoptOrphans() {}

// hurry raises the priority of this process if its user may do that.
func hurry() { unix.Setpriority(unix.PRIO_PROCESS, 0, -20) }
