//go:build unix

package main

import (
	"errors"
	"math"
	"os"
	"runtime"

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

// openFiles returns how many files this process has open, or 0 if that is not known.
func openFiles() int {
	paths := map[string]string{"linux": "/proc/self/fd", "darwin": "/dev/fd"} // elsewhere /dev/fd can have the first three only
	dir, err := os.Open(paths[runtime.GOOS])
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0
	}
	return len(names) - 1 // dir is one of them
}

// tryLock locks a file until it is closed, and reports whether no other process has it.
func tryLock(f *os.File) (isFree bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
