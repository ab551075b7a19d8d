package main

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

var update = flag.Bool("update", false, "write testdata/promised.txt anew")

// TestCommandChangesOnPurpose: testdata/promised.txt lists the commands, flags, settings and fields
// of JSON on which programs rely, so that reviewers see each change. docs/COMPATIBILITY.md lists
// the allowed changes.
func TestCommandChangesOnPurpose(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, c := range newRoot().Commands() {
		if c.Name() == "demo" || c.Name() == "nodes" || !c.Runnable() { // demo and nodes may change; the others are help
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
		"status --json": status{}, "doctor --json": examination{}, "reset --json": setReset{}, "hold": holdLine{},
	} {
		lines = append(lines, fieldLines("json "+command, reflect.TypeOf(output))...)
	}
	slices.Sort(lines)
	got := strings.Join(slices.Compact(lines), "\n") + "\n"
	documents.Golden(t, "testdata/promised.txt", got, *update)
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

// fieldLines returns a line for each field of a JSON document, with its path.
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
