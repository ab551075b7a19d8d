package load

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

// A meter reads the CPU time and the allocations of this process in the measured time.
type meter struct {
	profile string // record.Load.Profile, of the first process
	cpu     time.Duration
	allocs  uint64
	file    *os.File // of the profile
}

// metered is what a meter has measured.
type metered struct {
	cpu    time.Duration
	allocs int64
}

func (c *client) meter() *meter {
	if c.job.Process != 0 {
		return &meter{}
	}
	return &meter{profile: c.job.Load.Profile}
}

// start begins at that moment, which should be some milliseconds ahead: what came before is cleared
// away first. It returns at once if ctx ends.
func (m *meter) start(ctx context.Context, at time.Time) (err error) {
	runtime.GC()
	if m.profile != "" {
		if m.file, err = os.Create(m.profile); err != nil {
			return fmt.Errorf("load: CPU profile: %w", err)
		}
	}
	waitUntil(ctx, at)
	if m.file != nil {
		if err := pprof.StartCPUProfile(m.file); err != nil {
			return fmt.Errorf("load: CPU profile: %w", err)
		}
	}
	m.cpu, m.allocs = cpuTime(), mallocs()
	return nil
}

// stop returns the difference.
func (m *meter) stop() (metered, error) {
	is := metered{cpu: cpuTime() - m.cpu, allocs: int64(mallocs() - m.allocs)}
	if m.file != nil {
		pprof.StopCPUProfile()
		return is, m.file.Close()
	}
	return is, nil
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
