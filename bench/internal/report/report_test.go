package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// made is a run of two subjects and some rounds, of which theirs is four times as slow.
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
				Outcomes: map[string]int64{}, Nodes: []record.NodeCosts{{Commands: map[string]int64{"set": 80_000}}},
			}
			t.Outcomes[record.OK] = t.Cycles
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
		t.Violations, t.Violation = 2, "callers 3 and 9 held it"
		t.Outcomes[record.Failed], t.Errors = 7, map[string]int64{"no": 7}
	}
}

func faulty(t *record.Trial) {
	for i := range 10 {
		h := record.Coarse()
		if t.Subject == "ours" || i < 5 {
			h.Add(time.Duration(1+i) * time.Millisecond)
		}
		t.Slices = append(t.Slices, h)
	}
	from, without, recovery := 200*time.Millisecond, 22*time.Millisecond, time.Millisecond
	if t.Subject == "theirs" {
		from, without, recovery = 500*time.Millisecond, 501*time.Millisecond, -1
	}
	t.Feel(&record.Fault{What: "pause 2 of 5", From: from, To: from + 200*time.Millisecond})
	t.Fault.Without, t.Fault.Recovery = without, recovery
}

func holds(t *record.Trial) {
	t.Held = &record.HeldLocks{Wanted: 20_000, Acquired: 20_000, Bytes: 12_460_000, OnNode: 6_080_000, CPU: 120 * time.Millisecond, For: time.Second}
}

// swept is a run over points.
func swept() record.Run {
	run := made("scale", 0, steady)
	for _, point := range []string{"nodes=9", "nodes=1", "callers=1", "callers=64", "callers=1024", "length=16"} {
		for _, t := range made("scale", 2, steady).Trials {
			t.Load.Point = point
			run.Trials = append(run.Trials, t)
		}
	}
	run.Trials[1].Acquire = record.Histogram{}
	return run
}

func markdown(run record.Run) string {
	var b bytes.Buffer
	Markdown(&b, run)
	return b.String()
}

func TestTheTableHasTheFiguresThatTellMost(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `|  | ratio | cycles/s | min–max | p50 | p99 | client CPU | allocations | commands a node |
| --- | --: | --: | --: | --: | --: | --: | --: | --: |
| ours & <co> | 1.00× | 44.0 k | 40.0 k–48.0 k | 50.0 ms | 99.0 ms | 22.7 µs | 7.27 | 1.82 |
| theirs (one server) | 0.25× | 11.0 k | 10.0 k–12.0 k | 100 ms | 198 ms | 90.9 µs | 29.1 | 7.27 |
`, markdown(made("steady", 3, steady)))
	assert.Equal(t, `|  | ratio | cycles/s | min–max | p50 | p99 | overlaps | fairness (Jain) |
| --- | --: | --: | --: | --: | --: | --: | --: |
| ours & <co> | 1.00× | 42.0 k | 40.0 k–44.0 k | 50.0 ms | 99.0 ms | 0 | 0.80 |
| theirs (one server) | 0.25× | 10.5 k | 10.0 k–11.0 k | 100 ms | 198 ms | 2 | 0.80 |
`, markdown(made("contention", 2, contended)))
	assert.Equal(t, `|  | fault | no lock for | recovery | p99 before | p99 during |
| --- | --- | --: | --: | --: | --: |
| ours & <co> | pause 2 of 5 at 200 ms | 22.0 ms | 1.00 ms | 2.01 ms | 4.02 ms |
| theirs (one server) | pause 2 of 5 at 500 ms | 501 ms | none | 5.02 ms | - |
`, markdown(made("pause", 1, faulty)))
	run := made("held", 1, holds)
	run.Subjects = run.Subjects[:1]
	assert.Equal(t, `|  | acquired | lost | memory a lock | on each server | CPU of a core | held for |
| --- | --: | --: | --: | --: | --: | --: |
| ours & <co> | 20,000 of 20,000 | 0 | 623 B | 304 B | 12 % | 1.00 s |
`, markdown(run))
	assert.Contains(t, markdown(swept()), "|  | point | ratio | cycles/s |")
}

func TestTheTextSaysWhatTheFiguresAreWorth(t *testing.T) {
	t.Parallel()
	run := made("contention", 2, contended)
	run.Machine.Nodes = "embedded"
	var b bytes.Buffer
	require.NoError(t, Text(&b, run))
	for _, want := range []string{
		"contention: What it shows.", "5 nodes, 64 callers, client processes: 1, names single", "2 rounds of 1 s", "2 CPUs",
		"SAY NOTHING OF SPEED", "!! theirs (one server): 2 overlaps of holders among 21,000 holdings checked; callers 3 and 9 held it",
		"failed", "theirs (one server): 7 × no", "ours & <co>: as it comes",
	} {
		assert.Contains(t, b.String(), want)
	}
	b.Reset()
	require.NoError(t, Text(&b, record.Run{}))
	assert.Contains(t, b.String(), "nothing was measured")
	b.Reset()
	require.NoError(t, Text(&b, made("steady", 1, func(t *record.Trial) { t.Cycles = 0 })))
	assert.Contains(t, b.String(), "!! ours & <co>: not one cycle succeeded")
}

// TestPicturesAreDrawnWithinTheirBounds: each is well-formed, no text leaves it, and it says what it
// shows.
func TestPicturesAreDrawnWithinTheirBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		run  record.Run
		want string
	}{
		{made("steady", 3, steady), "steady-throughput.svg steady-latency.svg"},
		{made("contention", 1, contended), "contention-throughput.svg contention-latency.svg"},
		{made("pause", 1, faulty), "pause-faults.svg pause-throughput.svg pause-latency.svg"},
		{swept(), "scale-scale.svg"},
		{made("held", 1, holds), ""},
		{made("nothing", 1, func(t *record.Trial) { t.Cycles, t.Acquire = 0, record.Histogram{} }), ""},
		{record.Run{}, ""},
	} {
		var names []string
		for _, p := range SVGs(c.run) {
			names = append(names, p.Name)
			text := within(t, p)
			for _, want := range []string{c.run.About, "redis 7.0.15, linux/amd64, 2 CPUs", "is better", "ours & <co>"} {
				assert.Contains(t, text, want, "%s is seen without its page", p.Name)
			}
		}
		assert.Equal(t, c.want, strings.Join(names, " "))
	}
}

// within returns all that is written in a picture.
func within(t *testing.T, p Picture) string {
	t.Helper()
	var written []string
	height, drawn, titles := 0.0, 0, map[string]float64{} // where these end, by line
	for d := xml.NewDecoder(bytes.NewReader(p.SVG)); ; {
		token, err := d.Token()
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		at := map[string]string{}
		for _, a := range e.Attr {
			at[a.Name.Local] = a.Value
			assert.NotContains(t, a.Value, "NaN", p.Name)
			assert.NotContains(t, a.Value, "Inf", p.Name)
		}
		number := func(name string) float64 { n, _ := strconv.ParseFloat(at[name], 64); return n }
		switch e.Name.Local {
		case "svg":
			fmt.Sscanf(at["viewBox"], "0 0 720 %f", &height)
		case "text":
			var s string
			require.NoError(t, d.DecodeElement(&s, &e))
			written = append(written, s)
			left, w := number("x"), textWidth(s)
			if strings.Contains(at["class"], "middle") {
				left -= w / 2
			} else if strings.Contains(at["class"], "end") {
				left -= w
			}
			if at["class"] == "" {
				titles[at["y"]] = left + w
			}
			if end, ok := titles[at["y"]]; ok && at["class"] != "" && s != "" {
				assert.GreaterOrEqual(t, left, end, "%s: %s is written over the title", p.Name, s)
			}
			assert.True(t, left >= -1 && left+w <= width+1 && number("y") <= height, fmt.Sprint(p.Name, ": ", s, " ", at))
		default:
			drawn++
		}
	}
	assert.Greater(t, drawn, 10, p.Name)
	assert.Contains(t, string(p.SVG), "prefers-color-scheme:dark")
	return strings.Join(written, " ")
}

// TestASubjectHasALaneOfItsOwn: the lines of two are not drawn over one another.
func TestASubjectHasALaneOfItsOwn(t *testing.T) {
	t.Parallel()
	svg := string(SVGs(made("pause", 1, faulty))[0].SVG)
	var lanes []extent
	for _, path := range regexp.MustCompile(`<path d="([^"]*)" class="line c`).FindAllStringSubmatch(svg, -1) {
		lane := extent{math.Inf(1), math.Inf(-1)}
		for _, point := range regexp.MustCompile(`[ML][\d.]+ ([\d.]+)`).FindAllStringSubmatch(path[1], -1) {
			y, err := strconv.ParseFloat(point[1], 64)
			require.NoError(t, err)
			lane = extent{min(lane.from, y), max(lane.to, y)}
		}
		lanes = append(lanes, lane)
	}
	require.Len(t, lanes, 2)
	assert.Less(t, lanes[0].to, lanes[1].from)
}

func TestASubjectHasOneColour(t *testing.T) {
	t.Parallel()
	run := made("steady", 1, steady)
	for i := range 10 {
		run.Subjects = append(run.Subjects, record.Subject{Name: fmt.Sprint(i)})
	}
	v := look(run)
	assert.Equal(t, []string{"c0", "c1", "c1", "c3"}, []string{v.colour("ours"), v.colour("theirs"), v.colour("7"), v.colour("9")})
}
