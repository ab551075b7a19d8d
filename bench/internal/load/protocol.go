package load

import "github.com/redquorum/redquorum/bench/internal/record"

// A Job is what one trial's clients do. It is the first line that a child reads.
type Job struct {
	Subject string      // name for subject.Find
	URLs    []string    // of the nodes; may contain passwords
	Load    record.Load // of all processes together
	Process int         // which of them the child is, from zero; Run sets it
}

// A part is numbers of callers, or of locks: from first up to, not including, end.
type part struct{ first, end int }

// share is the process's part of n things.
func (j Job) share(n int) part {
	return part{n * j.Process / j.Load.Processes, n * (j.Process + 1) / j.Load.Processes}
}

// A beginning is the second line: when to begin, in nanoseconds of the wall clock.
type beginning struct {
	Begin int64 `json:"begin"`
}

// A message is a line that a child writes: that it is ready, and then its part of the trial, or an
// error instead of either.
type message struct {
	Ready bool          `json:"ready,omitempty"`
	Trial *record.Trial `json:"trial,omitempty"` // Cycles, Acquire, Outcomes, Errors, CPU, Allocs, Slices, Millis, Callers, Held
	Holds []byte        `json:"holds,omitempty"` // see encodeHolds
	Error string        `json:"error,omitempty"`
}
