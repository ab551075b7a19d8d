package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMarkdownIsOneTableOfWhatTellsMost(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"steady":     "|  | ratio | cycles/s | min–max | p50 | p99 | client CPU | allocations | commands a node |",
		"contention": "|  | ratio | cycles/s | min–max | p50 | p99 | overlaps | fairness (Jain) |",
		"pause":      "|  | fault | no lock for | recovery | p99 before | p99 during |",
		"held":       "|  | acquired | lost | memory a lock | on each server | CPU of a core | held for |",
	} {
		lines := strings.Split(strings.TrimSpace(string(written(t, Markdown, fixtures[name]()))), "\n")
		require.Greater(t, len(lines), 3, name)
		assert.Equal(t, head, lines[0])
		for _, line := range lines {
			assert.Equal(t, strings.Count(head, "|"), strings.Count(line, "|"), "%s: %s", name, line)
			assert.Regexp(t, `^\|.*\|$`, line)
		}
		assert.Contains(t, lines[2], "| redquorum |", name)
	}
	run := steadyRun(cast[:2], 1)
	run.Subjects[1].Title = "a | b\nc"
	assert.Contains(t, string(written(t, Markdown, run)), `| a \| b c |`)
}
