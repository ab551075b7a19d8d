package clock

import "golang.org/x/sys/unix"

// suspendClock is CLOCK_MONOTONIC plus the time suspended (clock_gettime(2)).
const suspendClock = unix.CLOCK_BOOTTIME
