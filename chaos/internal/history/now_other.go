//go:build unix && !linux

package history

import "golang.org/x/sys/unix"

const sharedClock = unix.CLOCK_MONOTONIC
