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
	permit, caller uint32 // each permit of the name has one holder at a time
	from, until    int64  // nanoseconds of the wall clock
}

func (h hold) times() check.Hold { return check.Hold{From: h.from, Until: h.until} }

const holdSize = 24

// permitOf is hold.permit of a lock.
func permitOf(lock subject.Lock) uint32 {
	if of, ok := lock.(interface{ Permit() int }); ok {
		return uint32(of.Permit())
	}
	return 0
}

func encodeHolds(hs []hold) []byte {
	b := make([]byte, 0, len(hs)*holdSize)
	for _, h := range hs {
		b = binary.LittleEndian.AppendUint32(b, h.permit)
		b = binary.LittleEndian.AppendUint32(b, h.caller)
		b = binary.LittleEndian.AppendUint64(b, uint64(h.from))
		b = binary.LittleEndian.AppendUint64(b, uint64(h.until))
	}
	return b
}

func decodeHolds(hs []hold, b []byte) ([]hold, error) {
	if len(b)%holdSize != 0 {
		return hs, errors.New("holds were cut off")
	}
	hs = slices.Grow(hs, len(b)/holdSize)
	for ; len(b) > 0; b = b[holdSize:] {
		hs = append(hs, hold{
			permit: binary.LittleEndian.Uint32(b), caller: binary.LittleEndian.Uint32(b[4:]),
			from: int64(binary.LittleEndian.Uint64(b[8:])), until: int64(binary.LittleEndian.Uint64(b[16:])),
		})
	}
	return hs, nil
}

// overlaps counts the pairs of holds of one permit that overlap, and returns the first of them. It
// sorts holds.
func overlaps(holds []hold) (pairs int64, first check.Overlap[hold]) {
	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.permit, b.permit) })
	for len(holds) > 0 {
		n := slices.IndexFunc(holds, func(h hold) bool { return h.permit != holds[0].permit })
		if n < 0 {
			n = len(holds)
		}
		for _, o := range check.Overlaps(holds[:n], hold.times) {
			if pairs == 0 || o.Later.from < first.Later.from {
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
		a.caller, at(a.from), at(a.until), b.caller, at(b.from), at(b.until), time.Duration(min(a.until, b.until)-b.from))
}
