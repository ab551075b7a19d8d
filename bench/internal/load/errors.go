package load

import (
	"regexp"
	"slices"
	"strings"
)

var digits = regexp.MustCompile(`[0-9]+`)

// group is the message without its numbers, which differ where its kind does not, and without
// repetition: of several nodes, one that says the same is enough.
func group(text string) string {
	text = digits.ReplaceAllString(text, "#")
	text = strings.Join(slices.Compact(strings.Split(text, "; ")), "; ")
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "") + "..."
	}
	return text
}

const (
	longestError = 300
	// distinctErrors bounds how many kinds a process tells apart: a library may put something
	// random into its messages.
	distinctErrors = 100
	otherErrors    = "(other messages)"
)

// count adds n of the message.
func count(messages map[string]int64, message string, n int64) {
	if _, known := messages[message]; !known && len(messages) >= distinctErrors {
		message = otherErrors
	}
	messages[message] += n
}
