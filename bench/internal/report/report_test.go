package report

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// forms are all that a run can be written as.
var forms = []struct {
	ext   string
	write func(io.Writer, record.Run) error
}{
	{".txt", Text},
	{".json", JSON},
	{".bench", Benchstat},
	{".html", HTML},
}

// small fixtures are enough where all histograms are encoded, which takes long.
var small = []string{"pause", "held", "alone", "nothing", "empty", "outlier"}

// With -artifacts the reports of all fixtures stay, to be looked at.
func TestReportsOfAllFixturesCanBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.ArtifactDir()
	for name, fixture := range fixtures {
		run := fixture()
		for _, p := range SVGs(run) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+"--"+p.Name), p.SVG, 0o600))
		}
		for _, form := range forms {
			if form.ext == ".json" && !slices.Contains(small, name) {
				continue
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+form.ext), written(t, form.write, run), 0o600))
		}
	}
}

func written(t *testing.T, write func(io.Writer, record.Run) error, run record.Run) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, write(&b, run))
	return b.Bytes()
}

func TestNoFormShowsAPasswordOrNoNumber(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for _, name := range small {
		run := fixtures[name]()
		run.Trials = slices.Clone(run.Trials)
		run.Command = "bench --nodes redis://:" + secret + "@10.0.0.1,rediss://user:" + secret + "@10.0.0.2:6380/1"
		for i := range run.Trials {
			run.Trials[i].Errors = map[string]int64{"dial redis://user:" + secret + "@h:1: refused": 2}
			run.Trials[i].Violation = "redis://u:" + secret + "@h"
		}
		for _, form := range forms {
			out := string(written(t, form.write, run))
			assert.NotContains(t, out, secret, "%s%s", name, form.ext)
			assert.NotRegexp(t, `\bNaN\b|[+-]Inf\b`, out, "%s%s", name, form.ext)
		}
		if len(run.Trials) > 0 {
			assert.Contains(t, run.Trials[0].Violation, secret, "the caller's run is not changed")
		}
	}
}

// What follows from one run may not depend on what was written before.
func TestWritingIsRepeatable(t *testing.T) {
	t.Parallel()
	run := fixtures["contention"]()
	for _, form := range forms {
		first := written(t, form.write, run)
		require.NoError(t, form.write(io.Discard, steadyRun(cast[:1], 1)))
		assert.Equal(t, string(first), string(written(t, form.write, run)), form.ext)
	}
}

func TestAReportCanBeMadeAnewFromJSON(t *testing.T) {
	t.Parallel()
	for _, name := range small {
		first := written(t, JSON, fixtures[name]())
		again, err := ReadJSON(bytes.NewReader(first))
		require.NoError(t, err)
		assert.JSONEq(t, string(first), string(written(t, JSON, again)), name)
		assert.Equal(t, string(written(t, Text, fixtures[name]())), string(written(t, Text, again)), name)
	}
}

func TestJSONOfAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	var fields map[string]any
	require.NoError(t, json.Unmarshal(written(t, JSON, record.Run{Scenario: "steady"}), &fields))
	assert.EqualValues(t, 1, fields["format"])
	assert.Equal(t, "steady", fields["scenario"])

	_, err := ReadJSON(strings.NewReader(`{"format":7}`))
	assert.ErrorContains(t, err, "format is 7")
	_, err = ReadJSON(strings.NewReader(`{"scenario":"steady"}`))
	assert.ErrorContains(t, err, "format is 0")
	_, err = ReadJSON(strings.NewReader(`goos: linux`))
	assert.ErrorContains(t, err, "no report")
}

func TestBenchstatReadsEveryLine(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`^Benchmark[A-Z][A-Za-z0-9]*(/[a-z]+=[^\s/]+)+-2\t\d+(\t\d+(\.\d+)? [a-z0-9./%-]+)+$`)
	key := regexp.MustCompile(`^[a-z][^\sA-Z]*: \S`)
	for name, trials := range map[string]int{"steady": 18, "sweep": 87, "pause": 3, "contention": 15, "points": 36, "nothing": 0} {
		benchmarks := 0
		for l := range strings.Lines(string(written(t, Benchstat, fixtures[name]()))) {
			l = strings.TrimSuffix(l, "\n")
			switch {
			case strings.HasPrefix(l, "Benchmark"):
				benchmarks++
				assert.Regexp(t, line, l)
			case strings.HasPrefix(l, "# "), l == "Unit cycles/s better=higher":
			default:
				assert.Regexp(t, key, l)
			}
		}
		assert.Equal(t, trials, benchmarks, name)
	}
	run := steadyRun(cast[:1], 1)
	assert.Equal(t, "BenchmarkSteady/subject=redquorum/callers=64-2", benchmark(run, run.Trials[0]))
	run.Scenario, run.Trials[0].Load.Point, run.Machine.GOMAXPROCS = "pause 2-of-5", "two names/x", 1
	assert.Equal(t, "BenchmarkPause2Of5/subject=redquorum/callers=64/point=two_names_x", benchmark(run, run.Trials[0]))
}
