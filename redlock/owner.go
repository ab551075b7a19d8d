package redlock

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A label stands behind the random part of a value, for people who want to know who holds a
// lock, and since when:
//
//	0b5e...(40 hexadecimal digits) 20261122T120307Z web-3 pid 812
//
// The label of a permit begins with "permits=" and k. Nodes compare values as a whole, so a label is no part of any decision. The random part alone
// keeps two values apart.
const (
	randomLength = 40
	stamp        = "20060102T150405Z"
	maxOwner     = 128 // bytes
)

// withLabel puts an owner's label, and since when, behind the random part of a value.
func withLabel(random, owner string, since time.Time) string {
	return random + " " + since.UTC().Format(stamp) + " " + owner
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// A Holder is who holds a lock, as its value tells. It is zero for a value without a label, for
// example of another library.
type Holder struct {
	Owner string    // the label, of the option Owner
	Since time.Time // when the holder asked for the lock, by its own clock, to the second
}

// String returns the label and the time, such as "web-3 pid 812 since 2026-11-22T12:03:07Z", or
// nothing for the zero Holder.
func (h Holder) String() string {
	if h == (Holder{}) {
		return ""
	}
	return h.Owner + " since " + h.Since.Format(time.RFC3339)
}

// HolderOf reads the label of a lock's value, which Inspect and Lock.Value return. A lock that was
// handed over within a process has the Since of its first holder.
func HolderOf(value string) Holder {
	const digits = "0123456789abcdef"
	if len(value) <= randomLength || value[randomLength] != ' ' || strings.Trim(value[:randomLength], digits) != "" {
		return Holder{}
	}
	return parseLabel(value[randomLength+1:])
}

// parseLabel reads what stands behind the random part of a value. It comes from a server, where
// others may have written it.
func parseLabel(text string) Holder {
	text, _ = protocol.CutPermits(text)
	if len(text) <= len(stamp)+1 || len(text) > len(stamp)+1+maxOwner || text[len(stamp)] != ' ' {
		return Holder{}
	}
	since, err := time.Parse(stamp, text[:len(stamp)])
	label := text[len(stamp)+1:]
	if err != nil || !isPrintable(label) {
		return Holder{}
	}
	return Holder{Owner: label, Since: since}
}
