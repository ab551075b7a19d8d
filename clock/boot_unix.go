//go:build linux || darwin

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// resolution is the greatest difference between two readings within one step.
const resolution = 0

// sinceBoot reads the clock that keeps running during a suspend.
func sinceBoot() (time.Duration, bool) {
	var ts unix.Timespec
	if err := unix.ClockGettime(suspendClock, &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
