package report

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
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

// A report may not depend on the reports that were written before.
func TestWritingIsRepeatable(t *testing.T) {
	t.Parallel()
	run := fixtures["contention"]()
	for _, form := range forms {
		first := written(t, form.write, run)
		require.NoError(t, form.write(io.Discard, steadyRun(cast[:1], 1)))
		assert.Equal(t, string(first), string(written(t, form.write, run)), form.ext)
	}
}
