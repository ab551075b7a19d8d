package report

import (
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// tinyRun is so small that its text can be read here.
func tinyRun() record.Run {
	load := record.Load{Nodes: 5, Processes: 2, Callers: 8, Rate: 1500, Names: "uniform:1000", Hold: time.Millisecond, TTL: 2 * time.Second, Duration: 10 * time.Second}
	histogram := func(times ...time.Duration) (h record.Histogram) {
		for _, d := range times {
			h.Add(d)
		}
		return h
	}
	before := record.Quantiles{Count: 9, P99: time.Millisecond}
	faults := []record.Fault{{What: "kill 2 of 5", Kind: "kill", Nodes: []int{0, 1}, From: 2 * time.Second, To: 4 * time.Second}}
	return record.Run{
		Scenario: "kill", About: "Two of five nodes die.",
		Machine: record.Machine{OS: "linux", Arch: "arm64", CPUs: 8, GOMAXPROCS: 8, Go: "go1.26.0", Nodes: "embedded"},
		Subjects: []record.Subject{
			{Name: "redquorum", Title: "redquorum", Note: "as it comes"},
			{Name: "bsm", Title: "bsm/redislock 0.9", Note: "no quorum", Single: true},
		},
		Trials: []record.Trial{
			{Subject: "redquorum", Load: load, Elapsed: 10 * time.Second, Cycles: 15000, CPU: time.Second, Allocs: 150000,
				Acquire: histogram(time.Millisecond, time.Millisecond, 4*time.Millisecond), Outcomes: map[string]int64{record.OK: 15000},
				Faults: faults, Services: []record.Service{{Without: 3 * time.Millisecond, Recovery: 0, Before: before, During: record.Quantiles{Count: 9, P99: 4 * time.Millisecond}}}, Checked: 15000},
			{Subject: "bsm", Load: load, Elapsed: 10 * time.Second, Cycles: 9000, CPU: 900 * time.Millisecond,
				Acquire: histogram(2 * time.Second), Outcomes: map[string]int64{record.OK: 9000, record.Failed: 3000, record.UnderWay: 8},
				Errors: map[string]int64{"dial tcp: refused": 3000},
				Faults: faults, Services: []record.Service{{Without: 2100 * time.Millisecond, Recovery: -1, Before: before}},
				Checked: 9000, Violations: 1, Violation: "bench:7, 2 ms", KeysLeft: 1},
		},
	}
}

func TestTextIsWhatATerminalShows(t *testing.T) {
	t.Parallel()
	assert.Equal(t, strings.TrimPrefix(`
kill: Two of five nodes die.
8 callers, 2 client processes, 1,500 cycles/s begun by schedule, names uniform:1000, each lock held for 1 ms,
    TTL 2 s, 1 round of 10 s
5 embedded nodes, linux/arm64, 8 CPUs, GOMAXPROCS 8, go1.26.0

EMBEDDED NODES: THESE FIGURES SAY NOTHING OF SPEED

!! bsm/redislock 0.9 (one server): 1 overlap of holders among 9,000 holdings checked; bench:7, 2 ms
!! bsm/redislock 0.9 (one server): 1 lock key left on the nodes after all clients had ended

SPEED AND TIME TO ACQUIRE
subject           ratio  cycles/s      p50      p99    p99.9      max  failed
redquorum         1.00×    1.50 k  1.00 ms  4.00 ms  4.00 ms  4.00 ms     0 %
bsm (one server)  0.60×       900   2.00 s   2.00 s   2.00 s   2.00 s    25 %
ratio: cycles/s by those of redquorum. Latencies are of the acquisition.

COSTS OF A CYCLE
subject           ratio  client CPU  allocations
redquorum         1.00×     66.7 µs           10
bsm (one server)  1.50×      100 µs            -
ratio: client CPU by that of redquorum.

FAULTS
subject           fault                  no lock for  recovery  p99 before  p99 during
redquorum         kill 2 of 5 at 2.00 s      3.00 ms         0     1.00 ms     4.00 ms
bsm (one server)  kill 2 of 5 at 2.00 s       2.10 s      none     1.00 ms           -
no lock for: the longest time without an acquisition. recovery: from the fault's end to 90 % of the rate
    before it.

EXCLUSION AND FAIRNESS
subject           holdings checked  overlaps
redquorum                   15,000         0
bsm (one server)             9,000      1 !!

OUTCOMES, ALL ROUNDS TOGETHER
subject               ok  failed  under way  keys left
redquorum         15,000       0          0          0
bsm (one server)   9,000   3,000          8       1 !!

MOST FREQUENT ERRORS
bsm  3,000 × dial tcp: refused

redquorum  as it comes
bsm  bsm/redislock 0.9 (one server): no quorum
`, "\n"), string(written(t, Text, tinyRun())))
}

func TestTextFitsATerminal(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"steady", "pause", "flapping", "contention", "held", "outlier", "sweep"} {
		for line := range strings.Lines(string(written(t, Text, fixtures[name]()))) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), columns, "%s: %s", name, line)
		}
	}
}

func TestASubjectOnOneServerIsMarkedOnce(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "bsm (one server)", title(record.Subject{Name: "bsm", Single: true}))
	assert.Equal(t, "bsm 0.9 (one server)", title(record.Subject{Name: "bsm", Title: "bsm 0.9 (one server)", Single: true}))
	assert.Equal(t, "redsync", title(record.Subject{Name: "redsync"}))
}

// TestWhatWasLeftOutIsNamed with the reason, and without passwords.
func TestWhatWasLeftOutIsNamed(t *testing.T) {
	t.Parallel()
	run := tinyRun()
	run.LeftOut = []string{"other: dial redis://:secret@host: no tracking"}
	for name, show := range map[string]func(io.Writer, record.Run) error{"text": Text, "HTML": HTML, "JSON": JSON} {
		var b strings.Builder
		require.NoError(t, show(&b, run))
		assert.Contains(t, b.String(), "no tracking", name)
		assert.NotContains(t, b.String(), "secret", name)
	}
}
