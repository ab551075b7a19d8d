package load

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/bench/internal/subject"
	"github.com/redquorum/redquorum/internal/check"
)

// A hold is a time in which a caller relied on having a lock alone: from when Acquire had returned
// to when it called Release, or to the end of the validity that the library named just then,
// whichever was first. So it lies within the library's promise, nothing is added or taken off, and
// two that overlap are a violation as certain as the clock is exact (see clock).
type hold struct {
	Permit, Caller uint32 // each permit of the name has one holder at a time
	From, Until    int64  // nanoseconds of the wall clock
}

func (h hold) times() check.Hold { return check.Hold{From: h.From, Until: h.Until} }

// permitOf is hold.Permit of a lock.
func permitOf(lock subject.Lock) uint32 {
	if of, ok := lock.(interface{ Permit() int }); ok {
		return uint32(of.Permit())
	}
	return 0
}

func encodeHolds(hs []hold) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, hs)
	if err != nil {
		panic(err) // a hold has no size
	}
	return b
}

func decodeHolds(b []byte) ([]hold, error) {
	hs := make([]hold, len(b)/binary.Size(hold{}))
	if n, err := binary.Decode(b, binary.LittleEndian, hs); err != nil || n < len(b) {
		return nil, errors.New("holds were cut off")
	}
	return hs, nil
}

// overlaps counts the pairs of holds of one permit that overlap, and returns the first of them. It
// sorts holds.
func overlaps(holds []hold) (pairs int64, first check.Overlap[hold]) {
	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.Permit, b.Permit) })
	for len(holds) > 0 {
		n := slices.IndexFunc(holds, func(h hold) bool { return h.Permit != holds[0].Permit })
		if n < 0 {
			n = len(holds)
		}
		for _, o := range check.Overlaps(holds[:n], hold.times) {
			if pairs == 0 || o.Later.From < first.Later.From {
				first = o
			}
			pairs += int64(o.Others)
		}
		holds = holds[n:]
	}
	return pairs, first
}

// describe names the two holders of a lock, with times since start.
func describe(o check.Overlap[hold], start int64) string {
	a, b := o.First, o.Later
	at := func(nanos int64) time.Duration { return time.Duration(nanos - start).Round(time.Microsecond) }
	return fmt.Sprintf("callers %d (%v to %v) and %d (%v to %v) held it for %v at once",
		a.Caller, at(a.From), at(a.Until), b.Caller, at(b.From), at(b.Until), time.Duration(min(a.Until, b.Until)-b.From))
}
