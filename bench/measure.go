package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A result is one measurement of one subject. Times are in seconds.
type result struct {
	rate     float64 // acquire and release cycles a second
	p50, p99 float64 // of a cycle
	cpu      float64 // of this process, for a cycle
	allocs   float64 // for a cycle
	errors   int
}

// measure lets callers lock and unlock for d, each a name of its own.
func measure(ctx context.Context, s subject, callers int, d time.Duration) (result, error) {
	interrupted := ctx
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	took := make([][]float64, callers)
	failed := make([]int, callers)
	var firstErr sync.Map
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			name := fmt.Sprintf("bench:%s:%d", s.name, c)
			for ctx.Err() == nil {
				t := time.Now()
				if err := s.cycle(name); err != nil {
					failed[c]++
					firstErr.LoadOrStore("error", err)
					continue
				}
				took[c] = append(took[c], time.Since(t).Seconds())
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)

	if err := interrupted.Err(); err != nil {
		return result{}, err
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		err, _ := firstErr.Load("error")
		return result{}, fmt.Errorf("not one cycle succeeded: %v", err)
	}
	slices.Sort(all)
	cycles := float64(len(all))
	r := result{
		rate: cycles / elapsed.Seconds(), p50: all[len(all)/2], p99: all[len(all)*99/100],
		cpu: cpu.Seconds() / cycles, allocs: float64(after.Mallocs-before.Mallocs) / cycles,
	}
	for _, n := range failed {
		r.errors += n
	}
	return r, nil
}
