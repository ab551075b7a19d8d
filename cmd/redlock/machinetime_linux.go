package main

import "golang.org/x/sys/unix"

// machineClock is the same for all processes and goes on while the machine sleeps.
const machineClock = unix.CLOCK_BOOTTIME
