package main

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersionNamesTheCommit(t *testing.T) {
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
	command := succeeds(t, "version")
	assert.Equal(t, flag, command)
}
