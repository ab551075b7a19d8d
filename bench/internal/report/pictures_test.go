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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// elements reads markup to its end and returns its elements and its text.
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

// fetched matches all that makes a browser fetch something.
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
		"steady":     {"throughput", "latency"},
		"pause":      {"faults", "faults-in-detail", "throughput", "latency"},
		"sweep":      {"scale"},
		"scale":      {"scale"},
		"contention": {"throughput", "latency"},
		"held":       nil,
		"heldsweep":  nil,
		"nothing":    {"faults-in-detail", "throughput"},
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
	v := look(pauseRun(cast[:3], false))
	d := v.throughput(v.sums[1:]) // without redquorum
	assert.NotContains(t, d.body.String(), "bar f0")
	assert.Contains(t, d.body.String(), "bar f1")
	assert.Contains(t, d.body.String(), "bar f2")
}

func TestLogarithmicAxesSaySo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"steady", "pause", "sweep", "outlier"} {
		for _, p := range SVGs(fixtures[name]()) {
			if !strings.HasSuffix(p.Name, "throughput.svg") {
				assert.Contains(t, p.Caption, "logarithmic", p.Name)
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

// A median of three rounds would hide the one in which a caller waited a minute.
func TestAStallInOneRoundIsTheMaximum(t *testing.T) {
	t.Parallel()
	run := outlierRun()
	assert.Regexp(t, `redquorum .* 60\.0 s `, string(written(t, Text, run)))
	v := look(run)
	assert.Contains(t, v.latency(v.sums).body.String(), "redquorum: maximum 60.0 s")
}
