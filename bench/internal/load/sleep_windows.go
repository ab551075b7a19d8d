package load

import "time"

// nap sleeps for d, which is short. The runtime's own timers are of high
// resolution here.
func nap(d time.Duration) { time.Sleep(d) }
