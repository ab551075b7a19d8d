package documents_test

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheEvidenceHasWhatWasTried: each count of docs/tried.json is in the text for people, and complete.
func TestTheEvidenceHasWhatWasTried(t *testing.T) {
	t.Parallel()
	var all []struct {
		What, Unit, Commit, Date, Command string
		Count                             int
		Violations                        *int // not there: some were found, and the text says which
	}
	d := json.NewDecoder(strings.NewReader(read(t, "docs/tried.json")))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&all))
	require.NotEmpty(t, all)
	_, text, found := strings.Cut(read(t, "docs/EVIDENCE.md"), "\n## What was run\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	text = strings.Join(strings.Fields(text), " ")
	for _, one := range all {
		assert.NotEmpty(t, one.What)
		assert.NotEmpty(t, one.Command, one.What)
		assert.Regexp(t, `^(each|many|not noted|[0-9a-f]{7,40})$`, one.Commit, one.What)
		assert.Regexp(t, `^(each|\d{4}-\d{2}(-\d{2})?)$`, one.Date, one.What)
		assert.Regexp(t, `\b`+thousands(one.Count)+` (\w+ ){0,2}`+one.Unit, text, one.What)
	}
}

// thousands writes n as the documents do: 6,000.
func thousands(n int) string {
	text := strconv.Itoa(n)
	group := regexp.MustCompile(`^(\d+)(\d{3})\b`)
	for group.MatchString(text) {
		text = group.ReplaceAllString(text, "$1,$2")
	}
	return text
}
