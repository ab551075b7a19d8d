package judge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/judge"
)

// unit is that of the times in the tests' histories.
const unit = int64(time.Millisecond)

// parse makes a history of lines such as
//
//	10 asked 1.7 a            client 1 asks for lock a, its acquisition 7
//	20 granted 1.7 a 1000 90  with token 1000, until 90
//	30 extended 1.7 a 150
//	40 accepted 1.7 a 1000
//
// and of others without the last numbers; times are in milliseconds. Empty lines, and comments
// behind #, are left out.
func parse(t *testing.T, text string) (events []history.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		var e history.Event
		_, err := fmt.Sscan(f[0], &e.At)
		require.NoError(t, err, line)
		e.Kind = history.Kind(f[1])
		switch e.Kind {
		case history.Calm:
		case history.Fault:
			e.Name = f[2]
		case history.Left:
			_, err = fmt.Sscan(f[2], &e.Who)
			e.Name = f[3]
		case history.Granted:
			_, err = fmt.Sscanf(strings.Join(f[2:], " "), "%d.%d %s %d %d", &e.Who, &e.Op, &e.Name, &e.Token, &e.Until)
		case history.Extended:
			_, err = fmt.Sscanf(strings.Join(f[2:], " "), "%d.%d %s %d", &e.Who, &e.Op, &e.Name, &e.Until)
		case history.Accepted, history.Refused:
			_, err = fmt.Sscanf(strings.Join(f[2:], " "), "%d.%d %s %d", &e.Who, &e.Op, &e.Name, &e.Token)
		case history.Failed:
			e.Text = "held: by another"
			fallthrough
		default:
			_, err = fmt.Sscanf(strings.Join(f[2:], " "), "%d.%d %s", &e.Who, &e.Op, &e.Name)
		}
		require.NoError(t, err, line)
		e.At, e.Until = e.At*unit, e.Until*unit
		events = append(events, e)
	}
	return events
}

func verdict(t *testing.T, text string, wanted ...[]string) *judge.Verdict {
	t.Helper()
	v, err := judge.History(parse(t, text), wanted)
	require.NoError(t, err)
	assert.Zero(t, v.Undecided)
	return v
}

// broken names the rules that found something, each once.
func broken(v *judge.Verdict) (rules []string) {
	for _, f := range v.Violations {
		if len(rules) == 0 || rules[len(rules)-1] != f.Rule {
			rules = append(rules, f.Rule)
		}
	}
	return rules
}
