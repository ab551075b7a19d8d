package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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
	case "own", "single", "new":
		if !counted {
			return kind, 1, nil
		}
	case "uniform", "zipf":
		n, err := strconv.Atoi(count)
		if err == nil && 1 <= n && n <= mostNames {
			return kind, n, nil
		}
	}
	return "", 0, fmt.Errorf("load: names %q: use own (each caller its own), single (one for all), new (one for each cycle), uniform:1000 or zipf:1000 (callers pick one of a thousand; at most %d)", s, mostNames)
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
	seed  uint64
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
	kind, n, err := parseNames(l.Names)
	if err != nil {
		return names{}, err
	}
	ns := names{kind: kind, seed: l.Seed}
	switch kind {
	case "own":
		ns.first = callers.first
		ns.all = numbered(subject, l.Length, callers)
	case "new":
		if 0 < l.Length && l.Length < leastNewLength {
			return names{}, fmt.Errorf("load: names of %d bytes that are all new: must be %d at least", l.Length, leastNewLength)
		}
		ns.used, ns.length = new(atomic.Int64), l.Length
		ns.prefix = fmt.Sprintf("bench:%d:%d:", callers.first, time.Now().UnixNano())
	default:
		ns.all = numbered(subject, l.Length, part{0, n})
	}
	return ns, nil
}

// name returns the name that was picked.
func (ns names) name(picked int) string {
	if ns.kind != "new" {
		return ns.all[picked]
	}
	var memory [128]byte
	name := strconv.AppendInt(append(memory[:0], ns.prefix...), int64(picked), 10)
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
func (ns names) shared() bool { return ns.kind != "own" && ns.kind != "new" }

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
	case "new":
		return func() int { return int(ns.used.Add(1)) }
	}
	return func() int { return 0 }
}
