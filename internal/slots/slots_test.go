package slots

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLengthsThatDivideNoDayAreRefused(t *testing.T) {
	t.Parallel()
	for length, want := range map[time.Duration]string{
		time.Second: "", time.Minute: "", 100 * time.Second: "", 5 * time.Minute: "", 45 * time.Minute: "", time.Hour: "", 24 * time.Hour: "",
		27 * time.Minute:       "does not divide a day; the nearest that do are 24m0s and 30m0s",
		7 * time.Hour:          "does not divide a day; the nearest that do are 6h0m0s and 8h0m0s",
		7 * time.Second:        "does not divide a day; the nearest that do are 6s and 8s",
		59 * time.Second:       "does not divide a day; the nearest that do are 54s and 1m0s",
		61 * time.Second:       "does not divide a day; the nearest that do are 1m0s and 2m0s",
		25 * time.Hour:         "does not divide a day; the longest that does is 24h0m0s",
		700 * time.Millisecond: "does not divide a day; the shortest that does is 1s",
		0:                      "does not divide a day; the shortest that does is 1s",
	} {
		assert.Equal(t, want, Wrong(length, time.Duration.String), "%v", length)
	}
}
