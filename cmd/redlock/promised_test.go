package main

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

var update = flag.Bool("update", false, "write testdata/promised.txt anew")

// TestTheCommandIsWhatWasAgreedOn: testdata/promised.txt has the commands, flags, settings and fields of
// JSON that programs rely on, so that a change of one is seen by who reviews. docs/COMPATIBILITY.md says
// what may change.
func TestTheCommandIsWhatWasAgreedOn(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, c := range newRoot().Commands() {
		if c.Name() == "demo" || c.Name() == "nodes" || !c.Runnable() { // those may change, or are help
			continue
		}
		lines = append(lines, flagLines(c)...)
	}
	for _, s := range settings {
		if s.flag != "" && s.key != "" {
			lines = append(lines, fmt.Sprintf("setting %s $%s", s.key, variable(s.key)))
		}
	}
	for command, output := range map[string]any{
		"status --json": status{}, "doctor --json": examination{}, "reset --json": resetReport{}, "hold": holdLine{},
	} {
		lines = append(lines, fieldLines("json "+command, reflect.TypeOf(output))...)
	}
	slices.Sort(lines)
	got := strings.Join(slices.Compact(lines), "\n") + "\n"
	const golden = "testdata/promised.txt"
	if *update {
		tr.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	tr.NoError(t, err)
	if changes := documents.Differences(string(want), got); len(changes) > 0 {
		assert.Fail(t, "the command has changed; if it is meant to, and docs/COMPATIBILITY.md allows it: "+
			"go test ./cmd/redlock -run AgreedOn -update", "%s", strings.Join(changes, "\n"))
	}
}

func flagLines(c *cobra.Command) []string {
	lines := []string{"command " + c.Use}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		line := "flag " + c.Name() + " --" + f.Name + " " + f.Value.Type()
		if f.Shorthand != "" {
			line += " -" + f.Shorthand
		}
		lines = append(lines, line)
	})
	return lines
}

// fieldLines has a line for each field of a JSON document, with the names on the way to it.
func fieldLines(path string, of reflect.Type) (lines []string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8 {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
		return []string{path}
	}
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			lines = append(lines, fieldLines(path, f.Type)...)
		default:
			lines = append(lines, fieldLines(path+" "+name, f.Type)...)
		}
	}
	return lines
}
