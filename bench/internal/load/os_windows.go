package load

import (
	"syscall"
	"time"
)

// cpuTime is the time that this process has used of all processors.
func cpuTime() time.Duration {
	var created, exited, kernel, user syscall.Filetime
	self, err := syscall.GetCurrentProcess()
	if err != nil || syscall.GetProcessTimes(self, &created, &exited, &kernel, &user) != nil {
		return 0
	}
	// Two 32-bit halves of a number of 100 ns, not a date.
	ticks := func(f syscall.Filetime) int64 { return int64(f.HighDateTime)<<32 | int64(f.LowDateTime) }
	return time.Duration(100 * (ticks(kernel) + ticks(user)))
}

// nap sleeps for d, which is short. The runtime's own timers are of high resolution here.
func nap(d time.Duration) { time.Sleep(d) }
