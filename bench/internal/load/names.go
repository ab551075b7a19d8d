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

// CheckLength returns an error for a wrong value of Load.Length that is not zero: shorter names could
// not be told apart.
func CheckLength(n int) error {
	const least, most = 16, 64 << 10
	if n < least || n > most {
		return fmt.Errorf("load: names of %d bytes: must be %d to %d", n, least, most)
	}
	return nil
}

// names are the locks' names. They are made in advance, because all that is allocated in the
// measured time should be the library's. Those of kind new are not; see newNameAllocs.
type names struct {
	kind  string
	first int // the caller of this process that all[0] belongs to, of kind own
	all   []string

	prefix string        // of kind new: that of no other process or trial
	used   *atomic.Int64 // of kind new, so many
}

// newNameAllocs is how many heap objects a name of kind new takes. They are not counted.
const newNameAllocs = 1

// newNames are those that the callers of one process use.
func newNames(subject string, l record.Load, callers part) names {
	switch l.Names {
	case "own":
		return names{kind: l.Names, first: callers.first, all: numbered(subject, l.Length, callers)}
	case "single":
		return names{kind: l.Names, all: numbered(subject, l.Length, part{0, 1})}
	}
	return names{kind: l.Names, used: new(atomic.Int64), prefix: fmt.Sprintf("bench:%d:%d:", callers.first, time.Now().UnixNano())}
}

// next returns the caller's next name.
func (ns names) next(caller int) string {
	switch ns.kind {
	case "own":
		return ns.all[caller-ns.first]
	case "single":
		return ns.all[0]
	}
	var memory [128]byte
	return string(strconv.AppendInt(append(memory[:0], ns.prefix...), ns.used.Add(1), 10))
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
