package clock

import "golang.org/x/sys/unix"

// suspendClock counts sleep on macOS. Go's monotonic clock reads CLOCK_UPTIME_RAW there, which does
// not (clock_gettime(3)).
const suspendClock = unix.CLOCK_MONOTONIC
