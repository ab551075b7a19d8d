package history

import "golang.org/x/sys/unix"

// sharedClock continues while the machine sleeps, like the clock of the library.
const sharedClock = unix.CLOCK_BOOTTIME
