package quorum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDriftIsOnePerCentAndTwoMilliseconds(t *testing.T) {
	t.Parallel()
	for ttl, drift := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 2*time.Millisecond + 100*time.Microsecond,
		time.Second:           12 * time.Millisecond,
		10 * time.Second:      102 * time.Millisecond,
		time.Hour:             36*time.Second + 2*time.Millisecond,
	} {
		assert.Equal(t, drift, Drift(ttl), "%v", ttl)
		assert.Equal(t, ttl-drift, Deadline(5*time.Nanosecond, ttl)-5, "the deadline is the drift before a TTL from the start")
		assert.Greater(t, Deadline(time.Duration(0), ttl), time.Duration(0), "something is left to hold")
	}
}
