//go:build unix

package main

import (
	"errors"
	"math"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

// descriptors returns the limit of open files of this process, or 0 if it is unknown.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}

// openFiles returns the number of open files of this process, or 0 if it is unknown.
func openFiles() int {
	paths := map[string]string{"linux": "/proc/self/fd", "darwin": "/dev/fd"} // on other systems /dev/fd may list only the first three
	dir, err := os.Open(paths[runtime.GOOS])
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0
	}
	return len(names) - 1 // without dir itself
}

// tryLock locks a file until it is closed, and reports whether no other process has it.
func tryLock(f *os.File) (isFree bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// ignoreTerminal makes a read from the terminal fail in the background. Otherwise such a read would
// stop the process.
func ignoreTerminal() { signal.Ignore(unix.SIGTTIN) }
