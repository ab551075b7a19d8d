package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheDocumentHasTheExitCodesOfTheHelp: the table in docs/COMMAND.md is copied from code.
func TestTheDocumentHasTheExitCodesOfTheHelp(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/COMMAND.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(document), "\n| Exit code of `redlock run` |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	codes := func(text, column string) (all []string) {
		for _, cell := range regexp.MustCompile(column).FindAllStringSubmatch(text, -1) {
			all = append(all, strings.Split(cell[1], ", ")...)
		}
		slices.Sort(all)
		return all
	}
	want := codes(exitCodesHelp, `(?m)^  (\S.*?)  `)
	require.Len(t, want, 10)
	assert.Equal(t, want, codes(table, `(?m)^\| (\S.*?) \| `))
}
