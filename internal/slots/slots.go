// Package slots determines which lengths of time divide a day into equal slots. Slots of any other
// length begin at different times each day, so a job that starts by the clock would be skipped in
// some of them and would run twice in others. Package once, the command and the HTTP API refuse
// such lengths.
//
// Acquire acquires the lock of a tick for the command and the HTTP API.
package slots

import (
	"fmt"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Wrong returns the reason a length does not divide a day, with the nearest lengths that do, or an
// empty text if it does. It formats lengths with write.
func Wrong(length time.Duration, write func(time.Duration) string) string {
	if length > 0 && day%length == 0 {
		return ""
	}
	below, above := nearest(length)
	if above == 0 {
		return fmt.Sprintf("does not divide a day; the longest that does is %s", write(below))
	}
	if below == 0 {
		return fmt.Sprintf("does not divide a day; the shortest that does is %s", write(above))
	}
	return fmt.Sprintf("does not divide a day; the nearest that do are %s and %s", write(below), write(above))
}

// Text formats a length in the usual way: 24m, not 24m0s.
func Text(length time.Duration) string {
	text := length.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	return text
}

// nearest returns the nearest lengths that divide a day, in whole minutes from a minute on, and in
// whole seconds below. Zero means that there is no such length.
func nearest(length time.Duration) (below, above time.Duration) {
	unit := time.Minute
	if length < unit {
		unit = time.Second
	}
	for of := unit; of <= day; of += unit {
		switch {
		case day%of != 0:
		case of < length:
			below = of
		default:
			return below, of
		}
	}
	return below, 0
}
