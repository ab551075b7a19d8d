package redlock

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A label follows the random part of a value. It shows people the holder of a lock and the time of
// the holder's request:
//
//	0b5e...(40 hexadecimal digits) 20261122T120307Z web-3 pid 812
//
// The label of a permit begins with "permits=" and k. Nodes compare values as a whole, so a label
// has no part in any decision. The random part alone makes values unique.
const (
	randomLength = 40
	stamp        = "20060102T150405Z"
	maxOwner     = 128 // bytes
)

// withLabel appends the owner's label and the time since to the random part of a value.
func withLabel(random, owner string, since time.Time) string {
	return random + " " + since.UTC().Format(stamp) + " " + owner
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// A Holder is the holder of a lock, according to its value. It is zero for a value without a label,
// for example of another library.
type Holder struct {
	Owner string    // label from the option Owner
	Since time.Time // time of the holder's request, by its own clock, to the second
}

// String returns the label and the time, such as "web-3 pid 812 since 2026-11-22T12:03:07Z", or
// nothing for the zero Holder.
func (h Holder) String() string {
	if h == (Holder{}) {
		return ""
	}
	return h.Owner + " since " + h.Since.Format(time.RFC3339)
}

// HolderOf reads the label of a lock's value, as returned by Inspect and Lock.Value. A lock that
// was handed over within a process has the Since of its first holder.
func HolderOf(value string) Holder {
	const digits = "0123456789abcdef"
	if len(value) <= randomLength || value[randomLength] != ' ' || strings.Trim(value[:randomLength], digits) != "" {
		return Holder{}
	}
	return parseLabel(value[randomLength+1:])
}

// parseLabel parses the part after the random part of a value. Its input comes from a server, where
// other programs may have written it.
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
