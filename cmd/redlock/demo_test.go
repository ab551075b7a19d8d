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
	"github.com/redquorum/redquorum/internal/need"
)

func TestDemoOnEveryKindOfNode(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			need.Kind(t, kind)
			code, out, errs := redlockCommand(t, "demo", "--node", string(kind), "--json")
			assert.Zero(t, code, errs)
			scenes := 0
			var last struct {
				Note string
				OK   *bool
			}
			for line := range strings.Lines(out) {
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
	for _, args := range [][]string{{"--nodes", strings.Join(f.URLs(), ",")}, nil} {
		if args == nil {
			t.Setenv("REDLOCK_NODES", strings.Join(f.URLs(), " "))
		}
		code, out, errs := redlockCommand(t, append([]string{"demo"}, args...)...)
		assert.Zero(t, code, errs)
		assert.Equal(t, 4, strings.Count(out, "skipped:"))
		assert.Contains(t, out, "3 of 7 scenes happened as shown")
		assert.Contains(t, out, "redlock demo --node embedded")
		assert.NotContains(t, out, "All of it")
		assert.NotContains(t, out, "\x1b", "no colours where there is no terminal")
	}
}

func TestTheDemoRefusesServersThatAreNone(t *testing.T) {
	for _, node := range []string{"docker", "redis://:hunter2@127.0.0.1:x", "127.0.0.1:7001,127.0.0.1:7002"} {
		code, _, errs := redlockCommand(t, "demo", "--node", node)
		assert.Equal(t, exitUsage, code, node)
		assert.NotContains(t, errs, "hunter2")
		assert.Equal(t, 1, strings.Count(errs, "\n"))
	}
}

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

func TestAnInterruptEndsTheDemo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt"))
	var out, errs bytes.Buffer
	assert.Equal(t, exitInterrupted, run(ctx, []string{"demo"}, &out, &errs))
}
