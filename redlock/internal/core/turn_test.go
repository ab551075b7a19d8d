package core

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
)

// TestTurn plays one turn per row, in steps. In "got 1ms" the process gets the key in a
// millisecond. "met 1ms" is the same after the process has met another one. "asks" and "silent"
// release the key, with or without the question for waiting processes; "told 2" is the answer.
// "+9ms" lets time pass. "away 9ms" lets time pass while the process does not want the key. "on"
// and "over" are the expected states of the turn.
func TestTurn(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]string{
		"a process that knows of no others goes on": "got 1ms; silent; on; +1ms; got 1ms; silent; on",
		"it asks at the end, and goes on meanwhile": "got 1ms; +9ms; got 1ms; asks; on; +1ms; on; +1ms; over",
		"it asks once":                                       "got 1ms; +9ms; got 1ms; asks; got 1ms; silent; on",
		"nobody waits, so another turn begins":               "got 1ms; +9ms; got 1ms; asks; told 0; +9ms; on; +1ms; over",
		"others wait, so it lines up":                        "got 1ms; +9ms; got 1ms; asks; told 2; over",
		"one that has met others lines up and asks nobody":   "met 1ms; silent; over",
		"in the next turn it asks, because they may be gone": "met 1ms; silent; away 10ms; got 1ms; asks; told 0; on",
		"one that comes back later begins another turn":      "got 1ms; silent; away 10ms; on; got 1ms; +9ms; on",
		"one that held the key for a whole turn asks nobody": "got 1ms; +10ms; silent; over",
		"a turn is ten times as long as an acquisition":      "got 2ms; +19ms; on; +1ms; over",
		"a turn has a least length":                          "got 1us; +4999us; on; +1us; over",
		"one slow acquisition makes no long turn":            "got 1s; +99ms; on; +1ms; over",
		"a turn has a longest length":                        "got 10ms; got 20ms; got 40ms; silent; away 1s; got 40ms; +249ms; on; +1ms; over",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn, now := Turn{}, clock.Instant(time.Hour)
			last := func(step string) time.Duration {
				d, err := time.ParseDuration(step[strings.IndexAny(step, "0123456789"):])
				require.NoError(t, err)
				return d
			}
			for step := range strings.SplitSeq(steps, "; ") {
				switch word, rest, _ := strings.Cut(step, " "); word {
				case "got":
					turn.begins(now.Add(-last(step)), now, 0)
				case "met":
					turn.begins(now.Add(-last(step)), now, 1)
				case "asks", "silent":
					turn.ended = now
					assert.Equal(t, word == "asks", turn.asks(now), steps)
				case "told":
					others, err := strconv.Atoi(rest)
					require.NoError(t, err)
					turn.answered(others, now)
				case "on", "over":
					assert.Equal(t, word == "over", turn.isOver(now), steps)
				case "away":
					now = now.Add(last(step))
				default:
					now = now.Add(last(step))
					turn.ended = now
				}
			}
		})
	}
}
