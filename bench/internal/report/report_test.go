package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// made returns a run of two subjects and some rounds. The subject theirs takes four times as long.
func made(scenario string, rounds int, change func(*record.Trial)) record.Run {
	run := record.Run{
		Scenario: scenario, About: "What it shows.",
		Machine:  record.Machine{OS: "linux", Arch: "amd64", CPUs: 2, GOMAXPROCS: 2, Go: "go1.26", Nodes: "process", Servers: "redis 7.0.15"},
		Subjects: []record.Subject{{Name: "ours", Title: "ours & <co>", Note: "as it comes"}, {Name: "theirs", Title: "theirs (one server)"}},
	}
	for round := range rounds {
		for i, s := range run.Subjects {
			t := record.Trial{
				Subject: s.Name, Round: round, Cycles: int64(40_000 / (1 + 3*i) * (10 + round) / 10), CPU: time.Second, Allocs: 320_000,
				Load:     record.Load{Nodes: 5, Processes: 1, Callers: 64, Names: "own", TTL: time.Second, Duration: time.Second},
				Commands: []int64{80_000},
			}
			for ms := range 100 {
				t.Acquire.Add(time.Duration(1+i) * time.Duration(1+ms) * time.Millisecond)
			}
			change(&t)
			run.Trials = append(run.Trials, t)
		}
	}
	return run
}

func steady(*record.Trial) {}

func contended(t *record.Trial) {
	t.Load.Names, t.Checked, t.Callers = "single", t.Cycles, []int64{3, 1}
	if t.Subject == "theirs" && t.Round == 1 {
		t.Violations, t.Violation, t.Errors = 2, "callers 3 and 9 held it", map[string]int64{"no": 7}
	}
}

func faulty(t *record.Trial) {
	t.Fault = &record.Fault{What: "pause 2 of 5", From: 200 * time.Millisecond, To: 400 * time.Millisecond}
	var samples []record.Sample
	for ms := range time.Duration(1000) {
		if t.Subject == "ours" || ms < 300 || ms > 950 {
			samples = append(samples, record.Sample{At: ms * time.Millisecond, Took: (1 + ms/100) * time.Millisecond})
		}
	}
	t.Fault.Feel(samples, time.Second)
}

func holds(t *record.Trial) {
	t.Held = &record.HeldLocks{Wanted: 20_000, Acquired: 20_000, Bytes: 12_460_000, OnNode: 6_080_000, CPU: 120 * time.Millisecond, For: time.Second}
	t.Cycles, t.Acquire = 20_000, record.Histogram{} // no acquisition is timed
}

func TestTableHasTheMainFigures(t *testing.T) {
	t.Parallel()
	for want, run := range map[string]record.Run{
		`|  | ratio | cycles/s | min–max | p50 | p99 | client CPU | allocations | commands a node |
| --- | --: | --: | --: | --: | --: | --: | --: | --: |
| ours & <co> | 1.00× | 44.0 k | 40.0 k–48.0 k | 50.0 ms | 99.0 ms | 22.7 µs | 7.27 | 1.82 |
| theirs (one server) | 0.25× | 11.0 k | 10.0 k–12.0 k | 100 ms | 198 ms | 90.9 µs | 29.1 | 7.27 |
`: made("steady", 3, steady),
		`|  | ratio | cycles/s | min–max | p50 | p99 | overlaps | fairness (Jain) |
| --- | --: | --: | --: | --: | --: | --: | --: |
| ours & <co> | 1.00× | 42.0 k | 40.0 k–44.0 k | 50.0 ms | 99.0 ms | 0 | 0.80 |
| theirs (one server) | 0.25× | 10.5 k | 10.0 k–11.0 k | 100 ms | 198 ms | 2 | 0.80 |
`: made("contention", 2, contended),
		`|  | fault | no lock for | recovery | p99 before | p99 during |
| --- | --- | --: | --: | --: | --: |
| ours & <co> | pause 2 of 5 at 200 ms | 1.00 ms | 0 | 2.00 ms | 4.00 ms |
| theirs (one server) | pause 2 of 5 at 200 ms | 652 ms | none | 2.00 ms | 3.00 ms |
`: made("pause", 1, faulty),
		`|  | acquired | lost | memory a lock | on each server | CPU of a core | held for |
| --- | --: | --: | --: | --: | --: | --: |
| ours & <co> | 20,000 of 20,000 | 0 | 623 B | 304 B | 12 % | 1.00 s |
| theirs (one server) | 20,000 of 20,000 | 0 | 623 B | 304 B | 12 % | 1.00 s |
`: made("held", 1, holds),
	} {
		var b bytes.Buffer
		Markdown(&b, run)
		assert.Equal(t, want, b.String())
	}
}

func TestTextBeginsWithProblems(t *testing.T) {
	t.Parallel()
	run := made("contention", 2, contended)
	run.Machine.Nodes = "embedded"
	var b bytes.Buffer
	require.NoError(t, Text(&b, run))
	assert.Regexp(t, `(?s)^contention: .*SAY NOTHING ABOUT SPEED.*!! theirs \(one server\): 2 overlaps of 21,000 holds; .*\n\|  .*theirs \(one server\): 7 × no\n.*: as it comes`, b.String())
	b.Reset()
	require.NoError(t, Text(&b, made("steady", 1, func(t *record.Trial) { t.Cycles = 0 })))
	assert.Contains(t, b.String(), "!! ours & <co>: no cycle succeeded")
}

// TestPicturesStandAlone: each picture is well-formed, contains its text, and names its subject.
func TestPicturesStandAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		run  record.Run
		want string
	}{
		{made("steady", 3, steady), "steady-latency.svg steady-throughput.svg"},
		{made("contention", 1, contended), "contention-latency.svg contention-throughput.svg"},
		{made("pause", 1, faulty), "pause-faults.svg pause-latency.svg pause-throughput.svg"},
		{made("same", 1, func(t *record.Trial) {
			t.Acquire = record.Histogram{}
			t.Acquire.Add(time.Millisecond)
		}), "same-latency.svg same-throughput.svg"},
		{made("held", 1, holds), ""},
		{record.Run{}, ""},
	} {
		pictures := SVGs(c.run)
		assert.Equal(t, c.want, strings.Join(slices.Sorted(maps.Keys(pictures)), " "))
		for name, svg := range pictures {
			text := textWithin(t, name, svg)
			for _, want := range []string{c.run.About, "redis 7.0.15, linux/amd64, 2 CPUs", "is better", "ours & <co>"} {
				assert.Contains(t, text, want, name)
			}
			assert.Contains(t, string(svg), "prefers-color-scheme:dark")
			assert.NotRegexp(t, "NaN|Inf", string(svg))
			assert.Contains(t, string(svg), `#0072B2`, "%s: the colour of the first subject", name)
			assert.Contains(t, string(svg), `#D55E00`, "%s: the colour of the second", name)
		}
	}
}

// textWithin returns the text of a picture, joined by spaces.
func textWithin(t *testing.T, name string, svg []byte) string {
	t.Helper()
	var all []string
	height := 0.0
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if err != nil {
			require.ErrorIs(t, err, io.EOF, name)
			return strings.Join(all, " ")
		}
		e, _ := token.(xml.StartElement)
		attribute := func(name string) string {
			i := slices.IndexFunc(e.Attr, func(a xml.Attr) bool { return a.Name.Local == name })
			return e.Attr[max(0, i)].Value
		}
		switch e.Name.Local {
		case "svg":
			_, err := fmt.Sscanf(attribute("viewBox"), "0 0 720 %f", &height)
			require.NoError(t, err)
		case "text":
			x, _ := strconv.ParseFloat(attribute("x"), 64)
			y, _ := strconv.ParseFloat(attribute("y"), 64)
			var s string
			require.NoError(t, d.DecodeElement(&s, &e))
			s = strings.TrimSpace(s)
			assert.True(t, x >= 0 && x+style(12, ink).Width(s).Points() <= 720 && -y >= 0 && -y <= height, "%s: %q at %v, %v", name, s, x, y)
			all = append(all, s)
		}
	}
}

func TestNumbersHaveThreeDigitsAndAUnit(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0": span(0), "1.00 µs": span(999.9), "62.3 µs": span(62_345), "10.0 s": span(9.996e9), "120 s": span(120e9),
		"17.2 k": count(17_234), "999": count(999), "1.00 k": count(999.9), "0.0123": significant(0.012345), "0.002×": ratio(0.0021), "0.3": short(0.30000000004),
	} {
		assert.Equal(t, want, got)
	}
}
