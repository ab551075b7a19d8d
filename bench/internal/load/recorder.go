package load

import (
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// mostHoldings bounds what a process remembers for the exclusion check.
const mostHoldings = 5_000_000

// A recorder keeps what the callers of one process see from start on. What ends
// at the trial's end or later counts as under way and no more, so that all figures
// are of the same span.
//
// One mutex is enough: it is held for some 0.1 us, and taken twice a cycle. It
// does not allocate in the way of a cycle that succeeds.
type recorder struct {
	start, end time.Time
	slice      time.Duration
	scrub      scrubber

	mu       sync.Mutex
	closed   bool
	ok       int64
	failed   int64
	acquire  record.Histogram
	release  record.Histogram
	cycle    record.Histogram
	outcomes map[string]int64 // but ok
	errors   map[string]int64
	slices   []*interval
	millis   []uint16
	callers  []int64          // nil: not asked for
	recent   record.Histogram // acquisitions since the last progress
	holdings []holding        // since the last progress
	spare    []holding        // the other buffer of the two
	checked  int              // holdings in all
}

// An interval is a record.Slice before the processes are put together.
type interval struct {
	Index    int              `json:"index"`
	Acquire  record.Histogram `json:"acquire"`
	Outcomes map[string]int64 `json:"outcomes"`
	ok       int64            // a map costs more
}

func newRecorder(start time.Time, duration, slice time.Duration, scrub scrubber) *recorder {
	r := &recorder{
		start: start, end: start.Add(duration), slice: slice, scrub: scrub,
		outcomes: map[string]int64{}, errors: map[string]int64{},
		slices: make([]*interval, slicesOf(duration, slice)),
		millis: make([]uint16, millisecondsOf(duration)),
		recent: record.Coarse(),
	}
	for _, h := range []*record.Histogram{&r.acquire, &r.release, &r.cycle} {
		h.Merge(record.Coarse()) // nothing yet, but allocated
	}
	return r
}

// slicesOf and millisecondsOf count the last one too, which may be shorter.
func slicesOf(d, slice time.Duration) int { return int((d + slice - 1) / slice) }
func millisecondsOf(d time.Duration) int  { return slicesOf(d, time.Millisecond) }

// acquired notes an acquisition that ended now and took so long.
func (r *recorder) acquired(now time.Time, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !now.Before(r.end) {
		return
	}
	r.acquire.Add(took)
	r.recent.Add(took)
	since := now.Sub(r.start)
	r.interval(since).Acquire.Add(took)
	if ms := &r.millis[since/time.Millisecond]; *ms < 1<<16-1 {
		*ms++
	}
}

// succeeded notes a cycle that ended now.
func (r *recorder) succeeded(caller int, now time.Time, cycle, release time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if !now.Before(r.end) {
		r.outcomes[record.UnderWay]++
		return
	}
	r.ok++
	r.release.Add(release)
	r.cycle.Add(cycle)
	r.interval(now.Sub(r.start)).ok++
	if r.callers != nil {
		r.callers[caller]++
	}
}

// ended notes a cycle that ended now, by err unless it is nil, without success.
func (r *recorder) ended(now time.Time, outcome string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if !now.Before(r.end) {
		r.outcomes[record.UnderWay]++
		return
	}
	r.failed++
	r.outcomes[outcome]++
	r.interval(now.Sub(r.start)).Outcomes[outcome]++
	if err != nil {
		count(r.errors, r.scrub.group(err.Error()), 1)
	}
}

// held notes a holding, whenever it ended.
func (r *recorder) held(h holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && r.checked < mostHoldings {
		r.checked++
		r.holdings = append(r.holdings, h)
	}
}

func (r *recorder) interval(since time.Duration) *interval {
	i := int(since / r.slice)
	if r.slices[i] == nil {
		r.slices[i] = &interval{Index: i, Acquire: record.Coarse(), Outcomes: map[string]int64{}}
	}
	return r.slices[i]
}

// progress returns what has happened so far, and the holdings since the last call;
// they are good until the next one.
func (r *recorder) progress(now time.Time) (Progress, []holding) {
	recent := record.Coarse()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{Elapsed: now.Sub(r.start), Cycles: r.ok, Failed: r.failed, P99: r.recent.At(0.99)}
	r.recent = recent
	holdings := r.holdings
	r.holdings, r.spare = r.spare[:0], holdings
	return p, holdings
}

// notBegun notes cycles that were due.
func (r *recorder) notBegun(n int64) {
	if n > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.outcomes[record.NotBegun] += n
	}
}

// begun is how many cycles have ended in time, well or not.
func (r *recorder) begun() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ok + r.failed
}

// close ends the recording and fills in what was recorded. Callers that are
// stuck in the library are still under way, and stay so.
func (r *recorder) close(res *result, stuck int) []*interval {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.outcomes[record.OK] += r.ok
	if stuck > 0 {
		r.outcomes[record.UnderWay] += int64(stuck)
		count(r.errors, "a caller was still in the library # s after the end", int64(stuck))
	}
	t := &res.Trial
	t.Cycles, t.Acquire, t.Release, t.Cycle = r.ok, r.acquire, r.release, r.cycle
	t.Outcomes, t.Errors, t.Callers = r.outcomes, r.errors, r.callers
	res.Millis = r.millis
	var slices []*interval
	for _, s := range r.slices {
		if s == nil {
			continue
		}
		if s.ok > 0 {
			s.Outcomes[record.OK] = s.ok
		}
		slices = append(slices, s)
	}
	return slices
}
