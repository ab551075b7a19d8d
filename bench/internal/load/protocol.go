package load

import (
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Job is what one trial's clients do.
type Job struct {
	Subject string        // name for subject.Find
	URLs    []string      // of the nodes; may contain passwords
	Load    record.Load   // of all processes together
	Slice   time.Duration // length of a record.Slice
}

// Progress is the counts so far, and the latest latency: P99 is of the acquisitions of about the
// last half second, in the slowest process.
type Progress struct {
	Elapsed        time.Duration
	Cycles, Failed int64
	P99            time.Duration
}

func (j Job) check() error {
	l := j.Load
	switch {
	case len(j.URLs) == 0:
		return errors.New("load: there are no nodes; give at least one URL")
	case l.Processes < 1 || l.Callers < l.Processes:
		return fmt.Errorf("load: %d callers in %d processes: every process needs a caller, and there must be a process", l.Callers, l.Processes)
	case l.Duration <= 0 || j.Slice <= 0 || l.TTL <= 0:
		return fmt.Errorf("load: duration %v, slice %v and TTL %v must be above zero", l.Duration,
			j.Slice, l.TTL)
	case l.Rate < 0 || l.Hold < 0 || l.Held < 0 || l.Warmup < 0 || l.Patience < 0:
		return fmt.Errorf("load: rate %g, hold %v, held %d, warm-up %v and patience %v must not be negative", l.Rate, l.Hold, l.Held, l.Warmup, l.Patience)
	case l.Held > 0 && (l.Rate > 0 || l.Hold > 0):
		return errors.New("load: locks that are held all the time have no cycles: leave out rate and hold")
	}
	return CheckNames(l.Names)
}

// A part is numbers of callers, or of locks: from first up to, not including, end.
type part struct{ first, end int }

// share is process p's part of n things.
func (j Job) share(n, p int) part {
	return part{n * p / j.Load.Processes, n * (p + 1) / j.Load.Processes}
}

// An assignment is the first line that a child reads.
type assignment struct {
	Job     Job `json:"job"`
	Process int `json:"process"` // from zero
}

// A beginning is the second: when to begin, in nanoseconds of the wall clock.
type beginning struct {
	Begin int64 `json:"begin"`
}

// A message is a line that a child writes. One field is set.
type message struct {
	Ready    bool      `json:"ready,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	Holds    []byte    `json:"holds,omitempty"`  // see encodeHolds
	Slice    *counts   `json:"slice,omitempty"`  // a line each: all together would be large
	Result   *result   `json:"result,omitempty"` // the last line
	Error    string    `json:"error,omitempty"`  // instead of the result
}

// A result is a process's part of the trial.
type result struct {
	Trial  record.Trial `json:"trial"` // Cycles, histograms, Outcomes, Errors, CPU, Allocs, Callers, Held
	Millis []uint16     `json:"millis"`
}
