package judge_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/judge"
)

// unit is the unit of the times in the histories of the tests.
const unit = int64(time.Millisecond)

// parse makes a history from lines such as
//
//	10 asked 1.7 a            client 1 asks for lock a, its acquisition 7
//	20 granted 1.7 a 1000 90  with token 1000, until 90
//	30 extended 1.7 a 150
//	40 accepted 1.7 a 1000
//	10 asked 1.8 a shared     what is not asked for by its kind is fenced
//	10 asked 1.9 a+b set
//	10 asked 2.1 p permit 3   one of three
//	20 granted 2.1 p 0 90 2   permit 2, without a token
//	50 fault flush
//
// and lines of other kinds without the last numbers; times are in milliseconds. Empty lines, and
// comments after #, are ignored.
func parse(t *testing.T, text string) (events []history.Event) {
	t.Helper()
	asked := map[history.Key]history.Event{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		at, err := strconv.ParseInt(f[0], 10, 64)
		require.NoError(t, err, line)
		e := history.Event{At: at, Kind: history.Kind(f[1])}
		number := func(i int) (n int64) {
			if i < len(f) {
				n, err = strconv.ParseInt(f[i], 10, 64)
				require.NoError(t, err, line)
			}
			return n
		}
		switch e.Kind {
		case history.Calm:
		case history.Fault:
			e.Name = f[2]
		case history.Left:
			e.Who, e.Name = int(number(2)), f[3]
		default:
			_, err = fmt.Sscanf(f[2], "%d.%d", &e.Who, &e.Op)
			require.NoError(t, err, line)
			lock := asked[history.Key{Who: e.Who, Op: e.Op}]
			e.Name, e.Lock, e.Names = f[3], lock.Lock, lock.Names
		}
		switch e.Kind {
		case history.Asked:
			if e.Lock = history.Fenced; len(f) > 4 {
				e.Lock = history.Lock(f[4])
			}
			if e.Lock == history.Set {
				e.Names = strings.Split(e.Name, "+")
			}
			e.Most = int(number(5))
			asked[history.Key{Who: e.Who, Op: e.Op}] = e
		case history.Granted:
			e.Token, e.Until, e.Permit = number(4), number(5), int(number(6))
		case history.Extended:
			e.Until = number(4)
		case history.Accepted, history.Refused:
			e.Name, e.Token = strings.ReplaceAll(f[3], "_", " "), number(4)
		case history.Failed:
			e.Text = "held: by another"
		}
		e.At, e.Until = e.At*unit, e.Until*unit
		events = append(events, e)
	}
	return events
}

func verdict(t *testing.T, text string, wanted ...[]string) *judge.Verdict {
	t.Helper()
	v, err := judge.History(parse(t, text), wanted)
	require.NoError(t, err)
	return v
}

// broken returns the names of the rules that found something, each once.
func broken(v *judge.Verdict) (rules []string) {
	for _, f := range v.Violations {
		if len(rules) == 0 || rules[len(rules)-1] != f.Rule {
			rules = append(rules, f.Rule)
		}
	}
	return rules
}
