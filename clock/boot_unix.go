//go:build linux || darwin

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// resolution is how far apart two readings within one step can be.
const resolution = 0

// sinceBoot reads the clock that goes on through a suspend.
func sinceBoot() (time.Duration, bool) {
	var ts unix.Timespec
	if err := unix.ClockGettime(suspendClock, &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
