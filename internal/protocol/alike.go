package protocol

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

var times = regexp.MustCompile(`\b[0-9.]+(?:ns|µs|ms|s|m|h)(?:[0-9.]+(?:m|s))*\b`)

// WithoutTimes replaces each time in a text by an ellipsis. Two texts are alike if they differ only
// in their times. Replies of several nodes rarely contain exactly the same time.
func WithoutTimes(text string) string { return times.ReplaceAllString(text, "…") }

// WithLongestTimes returns a, with each time replaced by the longer one of a and b. The texts must
// be alike.
func WithLongestTimes(a, b string) string {
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

// Together joins the replies of nodes. Nodes with like replies share one entry, with the longest
// times.
func Together(nodes, says []string) string {
	var names [][]string
	var texts []string
	for i, text := range says {
		at := slices.IndexFunc(texts, func(t string) bool { return WithoutTimes(t) == WithoutTimes(text) })
		if at < 0 {
			at = len(texts)
			names, texts = append(names, nil), append(texts, text)
		}
		names[at], texts[at] = append(names[at], nodes[i]), WithLongestTimes(texts[at], text)
	}
	for i, all := range names {
		texts[i] = strings.Join(all, ", ") + ": " + texts[i]
	}
	return strings.Join(texts, "; ")
}
