//go:build unix && !linux

package job

import "golang.org/x/sys/unix"

// machineClock is the same for all processes; on macOS it goes on while the machine sleeps.
const machineClock = unix.CLOCK_MONOTONIC

// adoptOrphans does nothing, because the init process waits for orphans here.
func adoptOrphans() {}

// hurry has the kernel run this process before others, if its user may ask for that.
func hurry() { unix.Setpriority(unix.PRIO_PROCESS, 0, -20) }
