package clock

import "golang.org/x/sys/unix"

// suspendClock counts sleep on macOS, unlike CLOCK_UPTIME_RAW, which is what
// Go's monotonic clock reads there (clock_gettime(3)).
const suspendClock = unix.CLOCK_MONOTONIC
