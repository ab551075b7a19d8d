// Package survey describes locks and servers at one moment, for people and programs: a Lock for "redlock status",
// and a Survey for the page of "redlock serve". Both are made from the Holdings of package inspect.
package survey

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// A Lock is the state of one name, as "redlock status --json" prints it. Names and values that are not text are
// present in base64, too.
type Lock struct {
	Name      string `json:"name"`
	NameBytes []byte `json:"name_base64,omitempty"`
	Group     string `json:"group,omitempty"`  // empty without groups
	Permit    *int   `json:"permit,omitempty"` // number of the permit, from 0, if there are several
	Claim
	ReadBy []Claim   `json:"read_by,omitempty"` // for each reader
	Nodes  []nodeKey `json:"nodes"`
}

// A Claim is the lock as one client holds it.
type Claim struct {
	State   string     `json:"state"`
	Votes   int        `json:"votes"` // nodes that hold the value
	content            // on most nodes
	Owner   string     `json:"owner,omitempty"`  // label in the value, if any
	Since   *time.Time `json:"since,omitempty"`  // time on the holder's clock
	TTL     *int64     `json:"ttl_ms,omitempty"` // -1: without limit
}

// A content is the value of a lock's key: the holder's value, or the value that stands for readers.
type content struct {
	Value   string `json:"value,omitempty"`
	Bytes   []byte `json:"value_base64,omitempty"`
	Readers bool   `json:"readers,omitempty"`
}

// A nodeKey is the key of a lock on one node.
type nodeKey struct {
	Node string `json:"node"`
	Held bool   `json:"held"` // the key exists
	content
	TTL   *int64 `json:"ttl_ms,omitempty"`
	Error string `json:"error,omitempty"`
}

func contentOf(value string) content {
	if value == protocol.ReadersValue {
		return content{Readers: true}
	}
	return content{Value: value, Bytes: bytesOf(value)}
}

// LockOf returns the state of a lock, and of each of its readers.
func LockOf(h *inspect.Holdings, l *inspect.Lock) Lock {
	s := Lock{Name: l.Name, NameBytes: bytesOf(l.Name), Claim: claimOf(l.On)}
	if l.Several {
		s.Permit = &l.Permit
	}
	for _, value := range inspect.ReadersOf(l.On) {
		s.ReadBy = append(s.ReadBy, claimOf(inspect.AsReader(l.On, value)))
	}
	for i, c := range l.On {
		k := nodeKey{Node: h.Servers[i].Name}
		switch {
		case c.Err != nil:
			k.Error = plain.Harmless(c.Err.Error())
		case c.TTL != 0:
			k.Held, k.TTL, k.content = true, Millis(c.TTL), contentOf(c.Value)
		}
		s.Nodes = append(s.Nodes, k)
	}
	return s
}

func claimOf(on []inspect.Contents) Claim {
	j := inspect.Judge(on)
	c := Claim{State: j.State, Votes: j.Votes, TTL: Millis(j.Left)}
	if j.Votes > 0 {
		c.content = contentOf(j.Value)
		if by := redlock.HolderOf(j.Value); by.Owner != "" {
			c.Owner, c.Since = by.Owner, &by.Since
		}
	}
	return c
}

// Millis returns a TTL in milliseconds, if there is one. It rounds up, because a key with less than
// a millisecond left still exists.
func Millis(ttl time.Duration) *int64 {
	switch ttl {
	case 0:
		return nil
	case protocol.NoTTL:
		return new(int64(-1))
	}
	return new(int64((ttl + time.Millisecond - 1) / time.Millisecond))
}

// bytesOf returns s if JSON cannot hold it as text, otherwise nil.
func bytesOf(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// Holder returns the holder as a word of a table: a value, or the number of readers.
func (l Lock) Holder() string {
	switch {
	case l.Votes == 0:
		return "-"
	case l.Readers && len(l.ReadBy) == 1:
		return "(1 reader)"
	case l.Readers && len(l.ReadBy) > 1:
		return fmt.Sprintf("(%d readers)", len(l.ReadBy))
	}
	return l.Shown()
}

// Title returns the lock's name, with the permit if there are several.
func (l Lock) Title() string {
	if l.Permit == nil {
		return plain.Word(l.Name)
	}
	return PermitTitle(l.Name, *l.Permit)
}

// PermitTitle returns the name of a permit.
func PermitTitle(name string, permit int) string {
	return fmt.Sprintf("%s, permit %d", plain.Word(name), permit)
}

// State returns the state of the key as a word of a table.
func (k nodeKey) State() string {
	switch {
	case k.NoLock():
		return "no lock"
	case k.Error != "":
		return "silent"
	case !k.Held:
		return inspect.Free
	case k.Stuck():
		return inspect.Stuck
	}
	return "holds"
}

// Stuck reports whether the key never expires.
func (k nodeKey) Stuck() bool { return k.Held && *k.TTL < 0 }

// NoLock reports whether the key holds something other than a lock.
func (k nodeKey) NoLock() bool { return strings.Contains(k.Error, protocol.ErrWrongType.Error()) }

// ReadersText replaces the value of the holder in tables.
const ReadersText = "(readers)"

// Shown returns the content as a word of a table.
func (c content) Shown() string {
	if c.Readers {
		return ReadersText
	}
	return Shown(c.Value)
}

// The values of package redlock begin with 40 random hexadecimal digits, and a space and a label
// may follow. No two locks share the first digits, so these identify a lock for people. The values
// of other clients may have the same beginning for different locks, for example a host name. They
// are shown and requested as a whole.
var (
	ofRedlock   = regexp.MustCompile(`^[0-9a-f]{40}( |$)`)
	IsTooShort  = regexp.MustCompile(`^[0-9a-f]{1,7}$`)
	IsBeginning = regexp.MustCompile(`^[0-9a-f]{8,40}$`) // with 8, two locks of one name begin alike once in 4 billion
)

const (
	LeastDigits = 8
	shownDigits = 12
	// shownRunes is the length to which the tables cut other values.
	shownRunes = 64
)

// Shown returns the part of a value that "release --value" needs, as a word of a table. A very long
// value is cut, and ends in "…".
func Shown(value string) string {
	if ofRedlock.MatchString(value) {
		return value[:shownDigits]
	}
	shown := []rune(plain.Word(value))
	if len(shown) > shownRunes {
		return string(shown[:shownRunes-1]) + "…"
	}
	return string(shown)
}

// Begins reports whether a value of package redlock begins with the digits.
func Begins(value, digits string) bool {
	return ofRedlock.MatchString(value) && strings.HasPrefix(value, digits)
}
