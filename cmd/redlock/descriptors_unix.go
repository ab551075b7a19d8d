//go:build unix

package main

import (
	"math"

	"golang.org/x/sys/unix"
)

// descriptors returns how many files this process may have open, or 0 if that is not known.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
