//go:build unix && !linux

package job

import "golang.org/x/sys/unix"

// machineClock is the same for all processes; on macOS it goes on while the machine sleeps.
const machineClock = unix.CLOCK_MONOTONIC

// adoptOrphans does nothing, because the init process waits for orphans here.
func adoptOrphans() {}
