package load

import "github.com/redquorum/redquorum/bench/internal/record"

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
	Holdings []byte    `json:"holdings,omitempty"` // see encodeHoldings
	Slice    *interval `json:"slice,omitempty"`    // a line each: all together would be large
	Result   *result   `json:"result,omitempty"`   // the last line
	Error    string    `json:"error,omitempty"`    // instead of the result
}

// A result is a process's part of the trial.
type result struct {
	Trial  record.Trial `json:"trial"` // Cycles, histograms, Outcomes, Errors, CPU, Allocs, Callers, Held
	Millis []uint16     `json:"millis"`
}
