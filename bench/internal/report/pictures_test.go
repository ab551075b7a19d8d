package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"html"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// elements reads markup to its end and returns what it is made of.
func elements(t *testing.T, d *xml.Decoder) (all []xml.StartElement, text string) {
	t.Helper()
	var b strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, b.String()
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			all = append(all, token.Copy())
		case xml.CharData:
			b.Write(token)
			b.WriteByte('\n')
		}
	}
}

// What a browser would fetch.
var fetched = regexp.MustCompile(`(?i)(src|href|srcset|data|action)\s*=|url\(|@import|<script|<link|<iframe|<object`)

func TestPicturesAreWellFormedAndNeedNothingElse(t *testing.T) {
	t.Parallel()
	for name, fixture := range fixtures {
		names := map[string]bool{}
		for _, p := range SVGs(fixture()) {
			where := name + ": " + p.Name
			assert.Regexp(t, `^[a-z0-9-]+\.svg$`, p.Name)
			assert.False(t, names[p.Name], "%s: two pictures of one name", where)
			names[p.Name] = true
			assert.NotEmpty(t, p.Title, where)
			assert.Regexp(t, `\.$`, p.Caption, where)
			all, _ := elements(t, xml.NewDecoder(bytes.NewReader(p.SVG)))
			require.NotEmpty(t, all)
			assert.Equal(t, "svg", all[0].Name.Local)
			assert.NotRegexp(t, fetched, string(p.SVG), where)
			assert.NotRegexp(t, `NaN|Inf\b|="-0"`, string(p.SVG), where)
			attributes := map[string]string{}
			for _, a := range all[0].Attr {
				attributes[a.Name.Local] = a.Value
			}
			assert.Equal(t, "img", attributes["role"], where)
			assert.Contains(t, attributes["aria-label"], p.Title, where)
		}
	}
}

func TestThePageIsWellFormedAndNeedsNothingElse(t *testing.T) {
	t.Parallel()
	for name, fixture := range fixtures {
		page := written(t, HTML, fixture())
		d := xml.NewDecoder(bytes.NewReader(page))
		d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
		all, _ := elements(t, d)
		assert.NotEmpty(t, all)
		assert.NotRegexp(t, fetched, string(page), name)
		assert.NotContains(t, string(page), "ZgotmplZ", name)
	}
}

func TestTextsOfARunCannotBreakOut(t *testing.T) {
	t.Parallel()
	const evil = `<script>alert("1")</script>&'` + "\x00"
	run := pauseRun(cast[:3], true)
	run.Scenario, run.About, run.Command = evil, evil, evil
	for i := range run.Subjects {
		run.Subjects[i].Title, run.Subjects[i].Note = evil, evil
	}
	for i := range run.Trials {
		trial := &run.Trials[i]
		trial.Errors = map[string]int64{evil: 1}
		trial.Violations, trial.Violation = 1, evil
		trial.Load.Point = evil
		for j := range trial.Faults {
			trial.Faults[j].What = evil
		}
		trial.Slices[0].Outcomes[evil] = 3
	}
	for _, p := range SVGs(run) {
		elements(t, xml.NewDecoder(bytes.NewReader(p.SVG)))
		assert.NotContains(t, string(p.SVG), "<script", p.Name)
	}
	assert.NotContains(t, string(written(t, HTML, run)), "<script")
}

func TestEverySubjectAndFaultIsInThePictures(t *testing.T) {
	t.Parallel()
	for name, fixture := range fixtures {
		run := fixture()
		for _, p := range SVGs(run) {
			all, text := elements(t, xml.NewDecoder(bytes.NewReader(p.SVG)))
			require.NotEmpty(t, all)
			text = strings.Join(strings.Fields(text), " ")
			for _, s := range run.Subjects {
				if name == "sweep" || name == "nothing" && !strings.Contains(p.Name, "faults") {
					continue // a subject may have nothing to show there
				}
				// Where it was cut, a tooltip has all of it.
				assert.Contains(t, text, strings.SplitN(s.Title, " (", 2)[0], "%s: %s", name, p.Name)
			}
			if strings.Contains(p.Name, "-faults") {
				for _, f := range run.Trials[0].Faults {
					assert.Contains(t, text, f.What, "%s: %s", name, p.Name)
				}
			}
		}
	}
}

func TestEachScenarioHasItsPictures(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"steady":     {"throughput", "latency", "distribution", "costs"},
		"pause":      {"faults", "throughput", "latency", "distribution", "costs"},
		"sweep":      {"sweep-throughput", "sweep-p99", "sweep-cpu"},
		"contention": {"throughput", "latency", "distribution", "costs", "fairness"},
		"held":       {"held"},
		"heldsweep":  {"sweep-held-memory", "sweep-held-cpu"},
		"nothing":    {"faults", "throughput"},
		"empty":      nil,
	} {
		var got []string
		for _, d := range look(fixtures[name]()).drawings() {
			got = append(got, d.name)
		}
		assert.Equal(t, want, got, name)
	}
}

func TestASubjectHasOneColourWhateverElseIsShown(t *testing.T) {
	t.Parallel()
	run := pauseRun(cast[:3], false)
	run.Trials[0].Acquire = record.Histogram{} // redquorum is not in the distribution
	v := look(run)
	d := v.distribution(v.sums)
	assert.NotContains(t, d.body.String(), "line l0")
	assert.Contains(t, d.body.String(), "line l1")
	assert.Contains(t, d.body.String(), "line l2")
}

func TestLogarithmicAxesSaySo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"steady", "pause", "sweep", "outlier"} {
		for _, p := range SVGs(fixtures[name]()) {
			for _, of := range []string{"latency", "distribution", "p99", "faults"} {
				if strings.HasSuffix(p.Name, of+".svg") {
					assert.Contains(t, p.Caption, "logarithmic", p.Name)
				}
			}
		}
	}
}

func TestEmbeddedNodesAndOverlapsStandAboveAllFigures(t *testing.T) {
	t.Parallel()
	run := contentionRun()
	run.Machine.Nodes = "embedded"
	text := string(written(t, Text, run))
	page := html.UnescapeString(string(written(t, HTML, run)))
	for _, warning := range []string{"2 overlaps of holders", "3 lock keys left"} {
		require.Contains(t, text, warning)
		require.Contains(t, page, warning)
		assert.Less(t, strings.Index(text, warning), strings.Index(text, "cycles/s"))
		assert.Less(t, strings.Index(page, warning), strings.Index(page, "<table"))
	}
	assert.Contains(t, text, strings.ToUpper(embeddedWarning))
	assert.Contains(t, page, embeddedWarning)
	assert.NotContains(t, string(written(t, Text, contentionRun())), strings.ToUpper(embeddedWarning))
}

// A median of three rounds would hide the one in which somebody waited a minute.
func TestAStallInOneRoundIsTheMaximum(t *testing.T) {
	t.Parallel()
	run := outlierRun()
	assert.Regexp(t, `redquorum .* 60\.0 s `, string(written(t, Text, run)))
	v := look(run)
	assert.Contains(t, v.latency(v.sums).body.String(), "redquorum: maximum 60.0 s")
}

func TestNodesAreSlowOnlyWellAboveWhatIsUsual(t *testing.T) {
	t.Parallel()
	usual := func(d time.Duration) []record.Trial {
		return []record.Trial{{Probes: [][]record.Probe{{{Took: d}, {Took: d}, {Took: -1}, {Took: time.Minute}}}}}
	}
	assert.Equal(t, 5*time.Millisecond, slowness(nil))
	assert.Equal(t, 5*time.Millisecond, slowness(usual(time.Millisecond)))
	assert.Equal(t, 20*time.Millisecond, slowness(usual(5*time.Millisecond)))

	p := trouble{slow: 5 * time.Millisecond}
	ms := time.Millisecond
	assert.Equal(t, []stretch{{0, 20 * ms, "n-fast"}, {20 * ms, 30 * ms, "n-none"}, {30 * ms, 50 * ms, "n-slow"}},
		p.stretches([]record.Probe{{At: 0, Took: ms}, {At: 10 * ms, Took: ms}, {At: 20 * ms, Took: -1}, {At: 30 * ms, Took: 5 * ms}, {At: 40 * ms, Took: 9 * ms}}))
	assert.Empty(t, p.stretches(nil))
}

// What piled up during a fault may come within one slice; on its scale the usual
// rate could not be seen.
func TestABurstDoesNotFlattenTheUsualRate(t *testing.T) {
	t.Parallel()
	trial := record.Trial{Subject: "redquorum", Elapsed: time.Second, Faults: []record.Fault{{What: "kill 1 of 5", To: time.Second}}}
	for i := range 10 {
		trial.Slices = append(trial.Slices, record.Slice{From: time.Duration(i) * 100 * time.Millisecond, Length: 100 * time.Millisecond, Outcomes: map[string]int64{record.OK: 50}})
	}
	trial.Slices[8].Outcomes[record.OK] = 1600
	p := trouble{group: group{trials: []record.Trial{trial}}}
	p.measure()
	assert.InDelta(t, 1500, p.most, 1e-9, "three times the usual")
	assert.True(t, p.beyond)
	d := look(record.Run{Trials: []record.Trial{trial}}).drawings()[0]
	assert.Contains(t, d.body.String(), "up to 16 k/s")
	assert.Contains(t, d.caption, "triangle")

	trial.Slices[8].Outcomes[record.OK] = 150
	p = trouble{group: group{trials: []record.Trial{trial}}}
	p.measure()
	assert.InDelta(t, 1500, p.most, 1e-9)
	assert.False(t, p.beyond)
}

// A figure beside the end of a line is taken for one of the last point.
func TestAFigureOfAnEarlierPointSaysWhichOne(t *testing.T) {
	t.Parallel()
	d := look(fixtures["sweep"]()).curve(curves[1])
	assert.Contains(t, d.body.String(), " ms at 64<", "redsync acquired nothing with 256 callers")
	assert.NotContains(t, d.body.String(), " at 256<")
	assert.Contains(t, d.caption, "A cross")
}

func TestPointsOfASweepStandWhereTheirNumbersAre(t *testing.T) {
	t.Parallel()
	a := place([]string{"callers=64", "callers=1", "callers=8"}, 0, 100)
	assert.Equal(t, "callers (logarithmic)", a.name)
	assert.Equal(t, []string{"callers=1", "callers=8", "callers=64"}, a.order)
	assert.InDelta(t, 50, a.at["callers=8"], 1e-9)

	a = place([]string{"ttl=1s", "ttl=1500ms", "ttl=2s"}, 0, 100)
	assert.Equal(t, "ttl", a.name)
	assert.InDelta(t, 50, a.at["ttl=1500ms"], 1e-9)

	for _, points := range [][]string{{"own", "single"}, {"callers=1", "rate=2"}, {"callers=1", "callers=many"}, {"x=NaN", "x=1"}} {
		a = place(points, 0, 100)
		assert.Empty(t, a.name, "%v are no numbers of one thing", points)
		assert.Equal(t, points, a.order)
		assert.Equal(t, 25.0, a.at[points[0]])
	}
	assert.InDelta(t, 50, place([]string{"callers=4"}, 0, 100).at["callers=4"], 1e-9)
}
