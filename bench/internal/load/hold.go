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
	name, caller uint32
	from, until  int64 // nanoseconds of the wall clock
}

func (h hold) times() check.Hold { return check.Hold{From: h.from, Until: h.until} }

const holdSize = 24

// permitShift is where a permit's number stands in hold.name: above all names. Each permit of a
// name has one holder at a time.
const permitShift = 20 // 1<<20 is above mostNames

// isShared reports whether a lock is held beside others of the same kind, so that no overlap of two
// is a violation.
func isShared(lock subject.Lock) bool {
	s, ok := lock.(interface{ Shared() bool })
	return ok && s.Shared()
}

// heldName is hold.name of a lock, where the lock may be one of several permits.
func heldName(name int, lock subject.Lock) uint32 {
	permit := 0
	if of, ok := lock.(interface{ Permit() int }); ok {
		permit = of.Permit()
	}
	return uint32(name | permit<<permitShift)
}

func encodeHolds(hs []hold) []byte {
	b := make([]byte, 0, len(hs)*holdSize)
	for _, h := range hs {
		b = binary.LittleEndian.AppendUint32(b, h.name)
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
			name: binary.LittleEndian.Uint32(b), caller: binary.LittleEndian.Uint32(b[4:]),
			from: int64(binary.LittleEndian.Uint64(b[8:])), until: int64(binary.LittleEndian.Uint64(b[16:])),
		})
	}
	return hs, nil
}

// overlaps counts the pairs of holds of one name that overlap, and returns the first of them. It
// sorts holds.
func overlaps(holds []hold) (pairs int64, first check.Overlap[hold]) {
	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.name, b.name) })
	for len(holds) > 0 {
		n := slices.IndexFunc(holds, func(h hold) bool { return h.name != holds[0].name })
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
func describe(subjectName string, o check.Overlap[hold], start int64) string {
	a, b := o.First, o.Later
	name := int(a.name & (1<<permitShift - 1))
	at := func(nanos int64) time.Duration { return time.Duration(nanos - start).Round(time.Microsecond) }
	return fmt.Sprintf("%s was held by callers %d (%v to %v) and %d (%v to %v) for %v at once",
		numbered(subjectName, 0, part{name, name + 1})[0],
		a.caller, at(a.from), at(a.until), b.caller, at(b.from), at(b.until), time.Duration(min(a.until, b.until)-b.from))
}
