package slots

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLengthMustDivideADay(t *testing.T) {
	t.Parallel()
	for length, want := range map[time.Duration]string{
		time.Second: "", time.Minute: "", 100 * time.Second: "", 5 * time.Minute: "", 45 * time.Minute: "", time.Hour: "", 24 * time.Hour: "",
		27 * time.Minute:       "does not divide a day; the nearest that do are 24m and 30m",
		7 * time.Hour:          "does not divide a day; the nearest that do are 6h and 8h",
		7 * time.Second:        "does not divide a day; the nearest that do are 6s and 8s",
		59 * time.Second:       "does not divide a day; the nearest that do are 54s and 1m",
		61 * time.Second:       "does not divide a day; the nearest that do are 1m and 2m",
		25 * time.Hour:         "does not divide a day; the longest that does is 24h",
		700 * time.Millisecond: "does not divide a day; the shortest that does is 1s",
		0:                      "does not divide a day; the shortest that does is 1s",
	} {
		assert.Equal(t, want, Wrong(length, Text), "%v", length)
	}
}

func TestLengthsAreFormattedInTheUsualWay(t *testing.T) {
	t.Parallel()
	for length, want := range map[time.Duration]string{0: "0s", 10 * time.Second: "10s", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 90 * time.Minute: "1h30m", 20 * time.Hour: "20h"} {
		assert.Equal(t, want, Text(length))
	}
}
