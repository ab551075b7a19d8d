package load

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A holding is a time in which a caller may have believed that it alone had a
// lock: from when Acquire had returned to when it called Release, or to the end
// of the validity that the library told just then, whichever was first. So it lies
// within what the library promised, nothing is added or taken off, and two that
// overlap are a violation as certain as the clock is exact (see clock).
type holding struct {
	name, caller uint32
	from, to     int64 // nanoseconds of the wall clock
}

const holdingSize = 24

func encodeHoldings(hs []holding) []byte {
	b := make([]byte, 0, len(hs)*holdingSize)
	for _, h := range hs {
		b = binary.LittleEndian.AppendUint32(b, h.name)
		b = binary.LittleEndian.AppendUint32(b, h.caller)
		b = binary.LittleEndian.AppendUint64(b, uint64(h.from))
		b = binary.LittleEndian.AppendUint64(b, uint64(h.to))
	}
	return b
}

func decodeHoldings(hs []holding, b []byte) ([]holding, error) {
	if len(b)%holdingSize != 0 {
		return hs, errors.New("holdings were cut off")
	}
	hs = slices.Grow(hs, len(b)/holdingSize)
	for ; len(b) > 0; b = b[holdingSize:] {
		hs = append(hs, holding{
			name: binary.LittleEndian.Uint32(b), caller: binary.LittleEndian.Uint32(b[4:]),
			from: int64(binary.LittleEndian.Uint64(b[8:])), to: int64(binary.LittleEndian.Uint64(b[16:])),
		})
	}
	return hs, nil
}

// overlaps counts the pairs of holdings of one name that overlap, and returns
// the first of them. It sorts hs. Holdings that only touch do not overlap.
func overlaps(hs []holding) (pairs int64, first [2]holding) {
	slices.SortFunc(hs, func(a, b holding) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	var open []holding // those of the present name that are not over
	for _, h := range hs {
		if h.to <= h.from {
			continue // over before it began: nobody relied on it
		}
		open = slices.DeleteFunc(open, func(o holding) bool { return o.name != h.name || o.to <= h.from })
		if len(open) > 0 && (pairs == 0 || h.from < first[1].from) {
			first = [2]holding{open[0], h}
		}
		pairs += int64(len(open))
		open = append(open, h)
	}
	return pairs, first
}

// describe says what happened in a violation, with times since start.
func describe(subject string, pair [2]holding, start int64) string {
	a, b := pair[0], pair[1]
	at := func(nanos int64) time.Duration { return time.Duration(nanos - start).Round(time.Microsecond) }
	return fmt.Sprintf("%s was held by callers %d (%v to %v) and %d (%v to %v) for %v at once", numbered(subject, int(a.name), int(a.name)+1)[0],
		a.caller, at(a.from), at(a.to), b.caller, at(b.from), at(b.to), time.Duration(min(a.to, b.to)-b.from))
}
