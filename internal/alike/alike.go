// Package alike tells once what several nodes say alike. Texts are alike if only their times differ,
// because three nodes never say 8.97s all.
package alike

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

var times = regexp.MustCompile(`\b[0-9.]+(?:ns|µs|ms|s|m|h)(?:[0-9.]+(?:m|s))*\b`)

// Key returns what texts that are alike have in common.
func Key(text string) string { return times.ReplaceAllString(text, "…") }

// Longest returns a with each time the longer of those in a and b, which are alike.
func Longest(a, b string) string {
	of := times.FindAllString(b, -1)
	return times.ReplaceAllStringFunc(a, func(one string) string {
		other := of[0]
		of = of[1:]
		x, _ := time.ParseDuration(one)
		if y, _ := time.ParseDuration(other); y > x {
			return other
		}
		return one
	})
}

// Together tells what the nodes say, those together that say the same, with the longest time.
func Together(nodes, says []string) string {
	var names [][]string
	var texts []string
	for i, text := range says {
		at := slices.IndexFunc(texts, func(t string) bool { return Key(t) == Key(text) })
		if at < 0 {
			at = len(texts)
			names, texts = append(names, nil), append(texts, text)
		}
		names[at], texts[at] = append(names[at], nodes[i]), Longest(texts[at], text)
	}
	for i, all := range names {
		texts[i] = strings.Join(all, ", ") + ": " + texts[i]
	}
	return strings.Join(texts, "; ")
}
