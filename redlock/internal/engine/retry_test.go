package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// TestScheduleFollowsEachFailedTry: each failure belongs to a try of the duration before it.
func TestScheduleFollowsEachFailedTry(t *testing.T) {
	t.Parallel()
	const (
		ms     = time.Millisecond
		noMore = -ms
	)
	held := core.Failure{Kind: core.ByOther}
	split := core.Failure{Kind: core.ByOther, Votes: 1}
	outage := core.Failure{Kind: core.NoQuorum, Silent: quorum.All(3)}
	rejected := core.Failure{Kind: core.NoQuorum, Nodes: 1, Answers: []core.Answer{{Err: protocol.PermanentError("NOAUTH")}}}
	type step struct {
		after  time.Duration // duration of the try
		failed core.Failure
		pause  time.Duration // the longest; noMore: there is no other try
		outage time.Duration
	}
	for name, c := range map[string]struct {
		Schedule
		steps []step
	}{
		"one try":                  {Schedule{}, []step{{ms, held, noMore, 0}}},
		"one in an outage":         {Schedule{}, []step{{20 * ms, outage, noMore, 20 * ms}}},
		"split votes are no try":   {Schedule{}, []step{{ms, split, 8 * ms, 0}, {ms, split, 16 * ms, 0}, {ms, held, noMore, 0}}},
		"but only five times":      {Schedule{}, []step{{0, split, 8 * ms, 0}, {0, split, 16 * ms, 0}, {0, split, 32 * ms, 0}, {0, split, 64 * ms, 0}, {0, split, 128 * ms, 0}, {0, split, noMore, 0}}},
		"and within the Timeout":   {Schedule{}, []step{{ms, split, 8 * ms, 0}, {900 * ms, split, 16 * ms, 0}, {200 * ms, split, noMore, 0}}},
		"two tries more":           {Schedule{Retries: 2}, []step{{ms, held, 8 * ms, 0}, {ms, outage, 16 * ms, ms}, {ms, held, noMore, 0}}},
		"without end":              {Schedule{Retries: Forever, Interval: 20 * ms}, []step{{ms, held, 19 * ms, 0}, {30 * ms, split, 0, 0}, {0, held, 20 * ms, 0}}},
		"no pause after a late":    {Schedule{Retries: Forever}, []step{{ms, core.Failure{Kind: core.Stale}, 0, 0}}},
		"a holder's time":          {Schedule{Retries: Forever}, []step{{ms, core.Failure{Kind: core.ByOther, Remaining: ms}, 6 * ms, 0}}},
		"a quarantine":             {Schedule{Retries: Forever}, []step{{ms, core.Failure{Kind: core.InQuarantine, Remaining: time.Hour}, 1125 * ms, 0}}},
		"patience":                 {Schedule{Retries: Forever, Interval: 50 * ms}, []step{{20 * ms, outage, 30 * ms, 20 * ms}, {40 * ms, outage, 10 * ms, 90 * ms}, {5 * ms, outage, noMore, 105 * ms}}},
		"which is for each outage": {Schedule{Retries: Forever, Interval: 50 * ms}, []step{{40 * ms, outage, 10 * ms, 40 * ms}, {40 * ms, held, 10 * ms, 0}, {40 * ms, outage, 10 * ms, 40 * ms}}},
		"a permanent failure":      {Schedule{Retries: Forever}, []step{{ms, rejected, noMore, ms}}},
		"counts as a try":          {Schedule{Retries: 1}, []step{{ms, rejected, 8 * ms, ms}, {ms, rejected, noMore, 10 * ms}}},
		"the end of the engine":    {Schedule{Retries: Forever}, []step{{ms, core.Failure{Kind: core.AfterClose}, noMore, 0}}},
	} {
		now := clock.Instant(time.Hour)
		r := retry{Schedule: c.Schedule, arrived: now, terms: &core.Terms{Timeout: time.Second, Patience: 100 * ms},
			group: &core.Group{Jitter: func(limit time.Duration) time.Duration { return limit }}}
		for i, s := range c.steps {
			r.began = now
			now = now.Add(s.after)
			pause, again := r.failed(&s.failed, settling(&s.failed), now)
			if !again {
				pause = noMore
			}
			assert.Equal(t, s.pause, pause, "%s: after try %d", name, i)
			assert.Equal(t, s.outage, r.failure.Outage, "%s: outage after try %d", name, i)
			now = now.Add(pause)
		}
	}
}
