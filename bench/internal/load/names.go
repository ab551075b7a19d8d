package load

import (
	"fmt"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// CheckNames returns an error for a wrong value of Load.Names.
func CheckNames(s string) error {
	if s != "own" && s != "single" {
		return fmt.Errorf("load: names %q: use own (each caller its own) or single (one for all)", s)
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

// names are the locks' names: one for all callers, or one for each. They are made in advance, because
// all that is allocated in the measured time should be the library's.
type names struct {
	first int // the caller of this process that all[0] belongs to
	all   []string
	// shared is whether two callers may want the same name.
	shared bool
}

// newNames are those that the callers of one process use.
func newNames(subject string, l record.Load, callers part) names {
	if l.Names == "single" {
		return names{all: numbered(subject, l.Length, part{0, 1}), shared: true}
	}
	return names{first: callers.first, all: numbered(subject, l.Length, callers)}
}

func (ns names) of(caller int) string {
	if ns.shared {
		return ns.all[0]
	}
	return ns.all[caller-ns.first]
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
