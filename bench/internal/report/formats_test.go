package report

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

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
	for name, trials := range map[string]int{"steady": 18, "sweep": 87, "pause": 3, "contention": 15, "scale": 132, "nothing": 0} {
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
