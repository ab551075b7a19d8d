package load

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
)

// mostHolds bounds how many holds a process keeps for the check of overlaps.
const mostHolds = 5_000_000

// A recorder counts the cycles of one process's callers from start on. Cycles that end at the
// trial's end or later count as under way and no more, so that all figures are of the same span.
//
// One mutex is enough: it is held for some 0.1 us, and taken twice a cycle. It does not allocate in
// the way of a cycle that succeeds.
type recorder struct {
	start, end time.Time
	scrub      endpoint.Scrubber

	mu     sync.Mutex
	closed bool
	ok     int64
	failed int64
	trial  record.Trial
	holds  []hold
}

func newRecorder(start time.Time, l record.Load, scrub endpoint.Scrubber) *recorder {
	r := &recorder{start: start, end: start.Add(l.Duration), scrub: scrub}
	r.trial = record.Trial{
		Outcomes: map[string]int64{}, Errors: map[string]int64{},
		// The last of both may be shorter.
		Slices: make([]record.Histogram, (l.Duration+record.SliceLength-1)/record.SliceLength),
		Millis: make([]uint16, (l.Duration+time.Millisecond-1)/time.Millisecond),
	}
	r.trial.Acquire.Merge(record.Coarse()) // nothing yet, but allocated
	for i := range r.trial.Slices {
		r.trial.Slices[i] = record.Coarse()
	}
	if l.Names == "single" {
		r.trial.Callers = make([]int64, l.Callers)
	}
	return r
}

// acquired notes an acquisition that ended now and took so long.
func (r *recorder) acquired(now time.Time, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !now.Before(r.end) {
		return
	}
	since := now.Sub(r.start)
	r.trial.Acquire.Add(took)
	r.trial.Slices[since/record.SliceLength].Add(took)
	if ms := &r.trial.Millis[since/time.Millisecond]; *ms < 1<<16-1 {
		*ms++
	}
}

// ended notes a cycle that ended now, by err unless it is nil.
func (r *recorder) ended(caller int, now time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return
	case !now.Before(r.end):
		r.trial.Outcomes[record.UnderWay]++
		return
	case err != nil:
		r.failed++
		count(r.trial.Errors, group(r.scrub.Clean(err.Error())), 1)
	default:
		r.ok++
		if r.trial.Callers != nil {
			r.trial.Callers[caller]++
		}
	}
}

// held notes a hold, whenever it ended.
func (r *recorder) held(h hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && len(r.holds) < mostHolds {
		r.holds = append(r.holds, h)
	}
}

// notBegun notes cycles that were due.
func (r *recorder) notBegun(n int64) {
	if n > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.trial.Outcomes[record.NotBegun] += n
	}
}

// close ends the recording and returns the figures, with what the meter has measured. Callers that
// are stuck in the library stay under way.
func (r *recorder) close(measured metered, stuck int) message {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	t := &r.trial
	if stuck > 0 {
		t.Outcomes[record.UnderWay] += int64(stuck)
		count(t.Errors, "a call was still in the library # s after the end", int64(stuck))
	}
	t.Cycles, t.Outcomes[record.OK], t.Outcomes[record.Failed] = r.ok, r.ok, r.failed
	t.CPU, t.Allocs = measured.cpu, measured.allocs
	return message{Trial: t, Holds: encodeHolds(r.holds)}
}

var digits = regexp.MustCompile(`[0-9]+`)

// group is the message without its numbers, which differ where its kind does not, and without
// repetition: of several nodes, one that says the same is enough.
func group(text string) string {
	text = digits.ReplaceAllString(text, "#")
	text = strings.Join(slices.Compact(strings.Split(text, "; ")), "; ")
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "") + "..."
	}
	return text
}

const (
	longestError = 300
	// distinctErrors bounds how many kinds a process tells apart: a library may put something
	// random into its messages.
	distinctErrors = 100
	otherErrors    = "(other messages)"
)

// count adds n of the message.
func count(messages map[string]int64, message string, n int64) {
	if _, known := messages[message]; !known && len(messages) >= distinctErrors {
		message = otherErrors
	}
	messages[message] += n
}
