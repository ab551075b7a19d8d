package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
)

func TestHelpFitsAWindow(t *testing.T) {
	for _, c := range ours() {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		code, out, errs := redlockCommand(t, args...)
		assert.Zero(t, code, args)
		assert.Empty(t, errs, args)
		for line := range strings.Lines(out) {
			assert.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 100, "%v: %s", args, line)
		}
		assert.False(t, strings.HasSuffix(out, "\n\n"), args)
	}
}

func TestHelpConfigListsEverySetting(t *testing.T) {
	listed := func(setting string) {
		assert.Contains(t, configHelp, "$REDLOCK_"+strings.ToUpper(setting)+" ", setting)
	}
	for _, c := range ours() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if key := f.Annotations[shared]; key != nil {
				listed(key[0])
				assert.Contains(t, configHelp, "--"+f.Name+" ")
			}
		})
	}
	for _, key := range secretSettings() {
		listed(key)
	}
}
