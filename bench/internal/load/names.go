package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// mostNames bounds how many are made in advance.
const mostNames = 1_000_000

// zipfExponent makes the first of a thousand names about a sixth of all picks.
const zipfExponent = 1.1

// CheckNames returns an error for a wrong value of Load.Names.
func CheckNames(s string) error {
	_, _, err := parseNames(s)
	return err
}

// parseNames returns the kind, and how many names there are unless each caller has its own.
func parseNames(s string) (kind string, n int, err error) {
	kind, count, counted := strings.Cut(s, ":")
	switch kind {
	case "own", "single":
		if !counted {
			return kind, 1, nil
		}
	case "uniform", "zipf":
		n, err := strconv.Atoi(count)
		if err == nil && 1 <= n && n <= mostNames {
			return kind, n, nil
		}
	}
	return "", 0, fmt.Errorf("load: names %q: use own (each caller its own), single (one for all), uniform:1000 or zipf:1000 (callers pick one of a thousand; at most %d)", s, mostNames)
}

// Bounds of Load.Length: shorter names could not be told apart.
const (
	leastLength = 16
	mostLength  = 64 << 10
)

// CheckLength returns an error for a wrong value of Load.Length that is not zero.
func CheckLength(n int) error {
	if n < leastLength || n > mostLength {
		return fmt.Errorf("load: names of %d bytes: must be %d to %d", n, leastLength, mostLength)
	}
	return nil
}

// names are the locks' names. They are made in advance, because all that is allocated in the
// measured time should be the library's.
type names struct {
	kind  string
	seed  uint64
	first int // the caller of this process that all[0] belongs to, of kind own
	all   []string
}

// newNames are those that the callers of one process use.
func newNames(subject string, l record.Load, callers part) (names, error) {
	kind, n, err := parseNames(l.Names)
	if err != nil {
		return names{}, err
	}
	ns := names{kind: kind, seed: l.Seed}
	if kind == "own" {
		ns.first = callers.first
		ns.all = numbered(subject, l.Length, callers)
	} else {
		ns.all = numbered(subject, l.Length, part{0, n})
	}
	return ns, nil
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
func (ns names) shared() bool { return ns.kind != "own" }

// picker returns the caller's choice of the next name, as an index. It is the same sequence for the
// same seed, however fast the subject is.
func (ns names) picker(caller int) func() int {
	random := rand.New(rand.NewPCG(ns.seed, uint64(caller)))
	switch ns.kind {
	case "uniform":
		return func() int { return random.IntN(len(ns.all)) }
	case "zipf":
		zipf := rand.NewZipf(random, zipfExponent, 1, uint64(len(ns.all)-1))
		return func() int { return int(zipf.Uint64()) }
	case "own":
		return func() int { return caller - ns.first }
	}
	return func() int { return 0 }
}
