//go:build unix && !linux

package history

import "golang.org/x/sys/unix"

// sharedClock may stop while the machine sleeps: these systems have no other clock that cannot be
// set.
const sharedClock = unix.CLOCK_MONOTONIC
