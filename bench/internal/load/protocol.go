package load

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Job is what one trial's clients do. It is the first line that a child reads. The second is the
// moment to begin, in nanoseconds of the wall clock.
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

// names are those of each caller's lock. They are made in advance, because all that is allocated in
// the measured time should be the library's.
func (j Job) names(callers part) []string {
	if j.Load.Names == "single" {
		return slices.Repeat(j.numbered(part{0, 1}), callers.end-callers.first)
	}
	return j.numbered(callers)
}

// numbered makes names of Load.Length bytes; 0: as short as they are. Where a length is asked for
// they are without the subject, whose own name may be longer.
func (j Job) numbered(of part) (all []string) {
	subject, length := j.Subject, j.Load.Length
	if length > 0 {
		subject = ""
	}
	for i := of.first; i < of.end; i++ {
		name := fmt.Sprintf("bench:%s:%d", subject, i)
		if missing := length - len(name); missing > 0 {
			name += ":" + strings.Repeat("x", missing-1)
		}
		all = append(all, name)
	}
	return all
}

// A message is a line that a child writes: that it is ready, and then its part of the trial, or an
// error instead of either.
type message struct {
	Ready bool          `json:"ready,omitempty"`
	Trial *record.Trial `json:"trial,omitempty"` // Cycles, Acquire, Outcomes, Errors, CPU, Allocs, Slices, Millis, Callers, Held
	Holds []byte        `json:"holds,omitempty"` // see encodeHolds
	Error string        `json:"error,omitempty"`
}
