//go:build unix

package load

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the time that this process has used of all processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// nap sleeps for d, which is short, with the precision of the kernel: 0.1 ms. An idle Go process's
// timers are up to 1 ms late, which is a few lock cycles.
func nap(d time.Duration) {
	if d <= 0 {
		return
	}
	tv := unix.NsecToTimeval(int64(d))
	// Interrupted by a signal, it returns early: the caller looks at the clock anyway.
	_, _ = unix.Select(0, nil, nil, nil, &tv)
}
