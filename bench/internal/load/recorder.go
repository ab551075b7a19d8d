package load

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// mostHolds bounds the holds and the samples that a process keeps.
const mostHolds = 5_000_000

// A recorder counts the cycles of the callers of a process. It omits cycles that end at the end of
// the trial or later, so all figures cover the same time. A successful cycle allocates nothing in the
// recorder, and locks its mutex twice for 0.1 us.
type recorder struct {
	start, end time.Time
	sampling   bool // keep samples

	mu      sync.Mutex
	trial   record.Trial
	holds   []hold
	samples []record.Sample
}

func newRecorder(start time.Time, l record.Load) *recorder {
	r := &recorder{start: start, end: start.Add(l.Duration)}
	r.trial = record.Trial{Errors: map[string]int64{}, Acquire: record.NewHistogram()}
	if l.Names == "single" {
		r.trial.Callers = make([]int64, l.Callers)
	}
	return r
}

// acquired counts an acquisition that ended now, with its duration.
func (r *recorder) acquired(now time.Time, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !now.Before(r.end) {
		return
	}
	r.trial.Acquire.Add(took)
	if r.sampling && len(r.samples) < mostHolds {
		r.samples = append(r.samples, record.Sample{At: now.Sub(r.start), Took: took})
	}
}

// ended counts a cycle that ended now: as a failure with err, or as a success if err is nil.
func (r *recorder) ended(caller int, now time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !now.Before(r.end):
	case err != nil:
		message := kind(err.Error())
		if _, known := r.trial.Errors[message]; !known && len(r.trial.Errors) >= kinds {
			message = "(other messages)"
		}
		r.trial.Errors[message]++
	default:
		r.trial.Cycles++
		if r.trial.Callers != nil {
			r.trial.Callers[caller]++
		}
	}
}

// held keeps a hold, even if it ended after the trial.
func (r *recorder) held(h hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.holds) < mostHolds {
		r.holds = append(r.holds, h)
	}
}

// close returns the figures. Calls that are still in the library can no longer change the figures.
func (r *recorder) close() result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = r.start
	return result{Trial: r.trial, Holds: pack(r.holds), Samples: pack(r.samples)}
}

// kinds bounds the number of messages, because a library may put random text into them.
const kinds = 100

var digits = regexp.MustCompile(`[0-9]+`)

// kind returns the message without its numbers, which differ within one kind of error, and without
// repetition for several nodes.
func kind(text string) string {
	text = digits.ReplaceAllString(text, "#")
	text = strings.Join(slices.Compact(strings.Split(text, "; ")), "; ")
	return strings.ToValidUTF8(text[:min(300, len(text))], "")
}
