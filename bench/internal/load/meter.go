package load

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

// metered is the CPU time and the allocations of this process.
type metered struct {
	cpu    time.Duration
	allocs int64
}

func meter() metered {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return metered{cpuTime(), int64(m.Mallocs)}
}

// measure calls run at start, which should be some milliseconds ahead, because what came before is
// cleared away first. It returns what this process has used from then to end, and writes the
// profile that was asked for.
func (c *client) measure(ctx context.Context, start, end time.Time, run func()) (used metered, err error) {
	runtime.GC()
	var profile *os.File
	if file := c.job.Load.Profile; file != "" && c.job.Process == 0 {
		if profile, err = os.Create(file); err != nil {
			return metered{}, fmt.Errorf("load: CPU profile: %w", err)
		}
		defer profile.Close()
	}
	waitUntil(ctx, start)
	if profile != nil {
		if err := pprof.StartCPUProfile(profile); err != nil {
			return metered{}, fmt.Errorf("load: CPU profile: %w", err)
		}
	}
	before := meter()
	stopped := make(chan metered)
	go func() {
		waitUntil(ctx, end)
		after := meter()
		pprof.StopCPUProfile() // does nothing if there is none
		stopped <- metered{after.cpu - before.cpu, after.allocs - before.allocs}
	}()
	run()
	return <-stopped, context.Cause(ctx)
}
