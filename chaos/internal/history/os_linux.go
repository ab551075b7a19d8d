package history

import "golang.org/x/sys/unix"

// sharedClock goes on while the machine sleeps, as the library's own clock does.
const sharedClock = unix.CLOCK_BOOTTIME
