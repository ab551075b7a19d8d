package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/require"
)

// redlockCommand runs the command as a shell would.
func redlockCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestDemoOnEveryKindOfNode(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process, fleet.Docker} {
		t.Run(string(kind), func(t *testing.T) {
			require.Kind(t, kind)
			code, out, errs := redlockCommand(t, "demo", "--nodes", string(kind), "--json")
			assert.Zero(t, code, errs)
			scenes := 0
			var last note
			for line := range strings.Lines(out) {
				last = note{}
				tr.NoError(t, json.Unmarshal([]byte(line), &last), line)
				if last.Note == "scene" {
					scenes++
				}
				assert.NotEqual(t, "skipped", last.Note)
			}
			assert.Equal(t, 7, scenes)
			tr.NotNil(t, last.OK)
			assert.True(t, *last.OK)
		})
	}
}

func TestDemoOnGivenServersLeavesThemAlone(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 3})
	tr.NoError(t, err)
	defer f.Close()
	code, out, errs := redlockCommand(t, "demo", "--nodes", strings.Join(f.URLs(), ","))
	assert.Zero(t, code, errs)
	assert.Equal(t, 4, strings.Count(out, "skipped:"))
	assert.Contains(t, out, "All of it happened")
	assert.NotContains(t, out, "\x1b", "no colours where there is no terminal")
}

// What the demo shows, it has checked: servers that do not behave make it fail.
func TestDemoFailsWhenSomethingDidNotHappen(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 3})
	tr.NoError(t, err)
	defer f.Close()
	var out bytes.Buffer
	err = play(t.Context(), &stubborn{f}, newNarrator(&out, false))
	assert.ErrorContains(t, err, "for want of a quorum")
}

// A stubborn fleet does not break.
type stubborn struct{ fleet.Fleet }

func (stubborn) Kill(context.Context, int) error { return nil }

func TestDemoReportsOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	var errs bytes.Buffer
	assert.Equal(t, exitFailed, run(t.Context(), []string{"demo"}, full, &errs))
	assert.Contains(t, errs.String(), "no space left")
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		out  string // on standard output where the code is 0, else on standard error
	}{
		{nil, exitUsage, "Usage:"},
		{[]string{"help"}, 0, "Usage:"},
		{[]string{"--help"}, 0, "Usage:"},
		{[]string{"--version"}, 0, "redlock version "},
		{[]string{"dance"}, exitUsage, `unknown command "dance"`},
		{[]string{"demo", "--help"}, 0, "--json"},
		{[]string{"demo", "--loud"}, exitUsage, "--loud"},
		{[]string{"demo", "now"}, exitUsage, "takes no arguments"},
		{[]string{"demo", "--nodes", "paper"}, exitFailed, `unknown kind "paper"`},
		{[]string{"demo", "--nodes", "redis://:hunter2@127.0.0.1:1"}, exitFailed, "127.0.0.1:1"},
	} {
		code, out, errs := redlockCommand(t, test.args...)
		assert.Equal(t, test.code, code, test.args)
		if test.code != 0 {
			out = errs
		}
		assert.Contains(t, out, test.out, test.args)
		assert.NotContains(t, out+errs, "hunter2")
	}
}

func TestAnInterruptEndsTheDemo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt"))
	var out, errs bytes.Buffer
	assert.Equal(t, exitInterrupted, run(ctx, []string{"demo"}, &out, &errs))
}
