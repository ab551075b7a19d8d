//go:build unix

package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap sleeps for d, which is short, with the precision of the kernel: 0.1 ms.
// An idle Go process's timers are up to 1 ms late, which is a few lock cycles.
func nap(d time.Duration) {
	if d <= 0 {
		return
	}
	tv := unix.NsecToTimeval(int64(d))
	// Interrupted by a signal, it returns early: the caller looks at the clock anyway.
	_, _ = unix.Select(0, nil, nil, nil, &tv)
}
