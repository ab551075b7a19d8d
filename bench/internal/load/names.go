package load

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// CheckNames returns an error for a wrong value of Load.Names.
func CheckNames(s string) error {
	if s != "own" && s != "single" && s != "new" {
		return fmt.Errorf("load: names %q: use own (each caller its own), single (one for all) or new (one for each cycle)", s)
	}
	return nil
}

// Bounds of Load.Length: shorter names could not be told apart.
const (
	leastLength    = 16
	leastNewLength = 64 // of kind new
	mostLength     = 64 << 10
)

// CheckLength returns an error for a wrong value of Load.Length that is not zero.
func CheckLength(n int) error {
	if n < leastLength || n > mostLength {
		return fmt.Errorf("load: names of %d bytes: must be %d to %d", n, leastLength, mostLength)
	}
	return nil
}

// names are the locks' names. They are made in advance, because all that is allocated in the
// measured time should be the library's. Those of kind new are not; see newNameAllocs.
type names struct {
	kind  string
	first int // the caller of this process that all[0] belongs to, of kind own
	all   []string

	prefix string // of kind new: that of no other process or trial
	length int
	used   *atomic.Int64 // of kind new, so many
}

// newNameAllocs is how many heap objects a name of kind new takes. They are not counted.
const newNameAllocs = 1

// newNames are those that the callers of one process use.
func newNames(subject string, l record.Load, callers part) (names, error) {
	ns := names{kind: l.Names}
	switch l.Names {
	case "own":
		ns.first = callers.first
		ns.all = numbered(subject, l.Length, callers)
	case "single":
		ns.all = numbered(subject, l.Length, part{0, 1})
	case "new":
		if 0 < l.Length && l.Length < leastNewLength {
			return names{}, fmt.Errorf("load: names of %d bytes that are all new: must be %d at least", l.Length, leastNewLength)
		}
		ns.used, ns.length = new(atomic.Int64), l.Length
		ns.prefix = fmt.Sprintf("bench:%d:%d:", callers.first, time.Now().UnixNano())
	}
	return ns, nil
}

// next returns the caller's next name.
func (ns names) next(caller int) string {
	if ns.kind == "single" {
		return ns.all[0]
	}
	if ns.kind == "own" {
		return ns.all[caller-ns.first]
	}
	var memory [128]byte
	name := strconv.AppendInt(append(memory[:0], ns.prefix...), ns.used.Add(1), 10)
	for len(name) < ns.length {
		name = append(name, 'x')
	}
	return string(name)
}

// numbered makes names of length bytes; 0: as short as they are. Where a length is asked for they
// are without the subject, whose own name may be longer.
func numbered(subject string, length int, of part) []string {
	if length > 0 {
		subject = ""
	}
	all := make([]string, 0, of.end-of.first)
	for i := of.first; i < of.end; i++ {
		name := fmt.Sprintf("bench:%s:%d", subject, i)
		if missing := length - len(name); missing > 0 {
			name += ":" + strings.Repeat("x", missing-1)
		}
		all = append(all, name)
	}
	return all
}

// shared is whether two callers may want the same name.
func (ns names) shared() bool { return ns.kind == "single" }
