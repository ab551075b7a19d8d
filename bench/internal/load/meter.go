package load

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A meter reads the CPU time and the allocations of this process in the measured time.
type meter struct {
	load   record.Load // with files for profiles if it is the first process
	cpu    time.Duration
	allocs uint64
	file   *os.File // of the CPU profile
}

func (c *client) meter() *meter {
	m := &meter{load: c.Job.Load}
	if c.Process != 0 {
		m.load.Profile, m.load.HeapFile = "", ""
	}
	return m
}

// start begins at that moment, which should be some milliseconds ahead: what came before is cleared
// away first. It returns at once if ctx ends.
func (m *meter) start(ctx context.Context, at time.Time) error {
	runtime.GC()
	if m.load.Profile != "" {
		file, err := os.Create(m.load.Profile)
		if err != nil {
			return fmt.Errorf("load: CPU profile: %w", err)
		}
		m.file = file
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

// stop fills in the difference.
func (m *meter) stop(t *record.Trial) error {
	t.CPU, t.Allocs = cpuTime()-m.cpu, int64(mallocs()-m.allocs)
	if m.file != nil {
		pprof.StopCPUProfile()
		if err := m.file.Close(); err != nil {
			return fmt.Errorf("load: CPU profile: %w", err)
		}
	}
	if m.load.HeapFile != "" {
		if err := heapProfile(m.load.HeapFile); err != nil {
			return fmt.Errorf("load: heap profile: %w", err)
		}
	}
	return nil
}

func heapProfile(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	runtime.GC() // the profile is as of the last one
	if err := pprof.WriteHeapProfile(file); err != nil {
		return err
	}
	return file.Close()
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
