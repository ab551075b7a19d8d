package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
)

func TestReleaseByForceAsksWhoeverIsAtTheTerminal(t *testing.T) {
	f := startFleet(t, fleet.Embedded, 3)
	for _, typed := range []string{"no\n", "job\n"} {
		put(t, f, "job", "v", 0, 1, 2)
		terminal, person := personsTerminal(t)
		_, err := person.WriteString(typed) // is there to be read when it is asked for
		tr.NoError(t, err)
		root := newRoot()
		root.SetArgs(on(f, "release", "job", "--force"))
		var out, errs bytes.Buffer
		root.SetIn(terminal)
		root.SetOut(&out)
		root.SetErr(&errs)
		err = root.ExecuteContext(t.Context())
		assert.Contains(t, out.String(), "VALUE", "it is shown what goes")
		assert.Contains(t, errs.String(), "Type the name (job)")
		if typed == "job\n" {
			assert.NoError(t, err)
			assert.Empty(t, has(t, f.URLs()[0], "job"))
		} else {
			assert.ErrorContains(t, err, "not confirmed")
			assert.Equal(t, "v", has(t, f.URLs()[0], "job"))
		}
	}
}

func TestStatusIsDrawnOverTheOneBeforeOnATerminal(t *testing.T) {
	terminal, _ := personsTerminal(t)
	assert.True(t, newScreen(terminal).over)
	file, err := os.Open(os.DevNull)
	tr.NoError(t, err)
	defer file.Close()
	assert.False(t, onTerminal(file))
	assert.False(t, onTerminal(strings.NewReader("")))
}
