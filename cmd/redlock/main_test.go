package main

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
		{[]string{"demo", "--help"}, 0, "--node"},
		{[]string{"demo", "--nodes", "redis://:hunter2@127.0.0.1:1"}, exitNoQuorum, "127.0.0.1:1"},
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

func TestTheVersionNamesTheCommit(t *testing.T) {
	built := func(settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "573eafa9"}
	for want, info := range map[string]*debug.BuildInfo{
		"unknown":                             nil,
		"(devel)":                             built(),
		"(devel) (commit 573eafa9)":           built(commit, debug.BuildSetting{Key: "vcs.modified", Value: "false"}),
		"(devel) (commit 573eafa9, modified)": built(commit, debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
	} {
		assert.Equal(t, want, versionOf(info))
	}
	_, flag, _ := redlockCommand(t, "--version")
	code, command, errs := redlockCommand(t, "version")
	assert.Zero(t, code, errs)
	assert.Equal(t, flag, command)
}
