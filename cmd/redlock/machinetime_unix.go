//go:build unix

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// machineTime is a reading of a clock that all processes of this machine share
// and that nobody can set.
func machineTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(machineClock, &ts); err != nil {
		panic("redlock: this machine has no monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
