package protocol

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLikeRepliesAreJoined(t *testing.T) {
	t.Parallel()
	assert.Empty(t, Together(nil, nil))
	assert.Equal(t, "a, d: EOF; b, c: 8.97s of 1m20s left; e: 8.97s, or so",
		Together([]string{"a", "b", "c", "d", "e"}, []string{"EOF", "8.967s of 1m20s left", "8.97s of 800ms left", "EOF", "8.97s, or so"}))
}

func TestOnlyTimesMayDiffer(t *testing.T) {
	t.Parallel()
	for a, b := range map[string]string{
		"port 6379": "port 6380", "2 of 3": "1 of 3", "10.0.0.1:1s": "10.0.0.2:1s", "run a5s": "run b5s",
	} {
		assert.NotEqual(t, WithoutTimes(a), WithoutTimes(b))
	}
	assert.Equal(t, WithoutTimes("in 20µs, or 1h2m3.5s"), WithoutTimes("in 500ns, or 0s"))
}
