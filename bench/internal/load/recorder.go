package load

import (
	"sync"
	"time"

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
	slice      time.Duration
	scrub      scrubber

	mu        sync.Mutex
	closed    bool
	ok        int64
	failed    int64
	acquire   record.Histogram
	release   record.Histogram
	cycle     record.Histogram
	outcomes  map[string]int64 // but ok
	errors    map[string]int64
	slices    []*counts
	millis    []uint16
	perCaller []int64          // nil: not asked for
	recent    record.Histogram // acquisitions since the last progress
	holds     []hold           // since the last progress
	spare     []hold           // the other buffer of the two
	checked   int              // holds in all
}

// counts are a record.Slice of one process.
type counts struct {
	Index    int              `json:"index"`
	Acquire  record.Histogram `json:"acquire"`
	Outcomes map[string]int64 `json:"outcomes"`
	ok       int64            // a map costs more
}

func newRecorder(start time.Time, duration, slice time.Duration, scrub scrubber) *recorder {
	r := &recorder{
		start: start, end: start.Add(duration), slice: slice, scrub: scrub,
		outcomes: map[string]int64{}, errors: map[string]int64{},
		slices: make([]*counts, slicesOf(duration, slice)),
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
	r.counts(since).Acquire.Add(took)
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
	r.counts(now.Sub(r.start)).ok++
	if r.perCaller != nil {
		r.perCaller[caller]++
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
	r.counts(now.Sub(r.start)).Outcomes[outcome]++
	if err != nil {
		count(r.errors, r.scrub.group(err.Error()), 1)
	}
}

// held notes a hold, whenever it ended.
func (r *recorder) held(h hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && r.checked < mostHolds {
		r.checked++
		r.holds = append(r.holds, h)
	}
}

func (r *recorder) counts(since time.Duration) *counts {
	i := int(since / r.slice)
	if r.slices[i] == nil {
		r.slices[i] = &counts{Index: i, Acquire: record.Coarse(), Outcomes: map[string]int64{}}
	}
	return r.slices[i]
}

// progress returns the counts so far, and the holds since the last call; they are good until the
// next one.
func (r *recorder) progress(now time.Time) (Progress, []hold) {
	recent := record.Coarse()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{Elapsed: now.Sub(r.start), Cycles: r.ok, Failed: r.failed, P99: r.recent.At(0.99)}
	r.recent = recent
	holds := r.holds
	r.holds, r.spare = r.spare[:0], holds
	return p, holds
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

// close ends the recording and fills in the figures. Callers that are stuck in the library stay
// under way.
func (r *recorder) close(res *result, stuck int) []*counts {
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
	t.Outcomes, t.Errors, t.Callers = r.outcomes, r.errors, r.perCaller
	res.Millis = r.millis
	var slices []*counts
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
