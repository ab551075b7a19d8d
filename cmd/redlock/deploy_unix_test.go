//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

// unit reads a unit of systemd: the values of each setting, by "Section.Setting".
func unit(t *testing.T, name string) (text string, settings map[string][]string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(documents.Root(t), "deploy", "systemd", name))
	tr.NoError(t, err)
	settings = map[string][]string{}
	section := ""
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		default:
			tr.True(t, ok && section != "", "%s: %q", name, line)
			settings[section+"."+key] = append(settings[section+"."+key], value)
		}
	}
	return string(raw), settings
}

// TestSystemdUnitsMatchTheCommand: the units also match each other.
func TestSystemdUnitsMatchTheCommand(t *testing.T) {
	t.Parallel()
	one := func(settings map[string][]string, name string) string {
		t.Helper()
		tr.Len(t, settings[name], 1, name)
		return settings[name][0]
	}
	serviceText, service := unit(t, "redlock.service")
	socketText, socket := unit(t, "redlock.socket")
	start := strings.Fields(one(service, "Service.ExecStart"))
	assert.Equal(t, "/usr/local/bin/redlock", start[0])
	assert.NoError(t, parses(start[1:]))
	tr.Equal(t, "serve", start[1])
	assert.Equal(t, "notify", one(service, "Service.Type"), "TestServeUsesTheSocketOfSystemd: it notifies")
	assert.NotEqual(t, one(socket, "Socket.SocketGroup"), one(service, "Service.User"), "systemd makes no user if a group has its name")
	assert.Equal(t, "unix:"+one(socket, "Socket.ListenStream"), newServe().Flags().Lookup("listen").DefValue)

	c := newServe()
	tr.NoError(t, c.ParseFlags(start[2:]))
	grace, err := c.Flags().GetDuration("stop-within")
	tr.NoError(t, err)
	limit, err := time.ParseDuration(one(service, "Service.TimeoutStopSec"))
	tr.NoError(t, err)
	assert.GreaterOrEqual(t, limit, grace+5*time.Second, "systemd kills what has not ended by then")
	connections, err := c.Flags().GetInt("max-connections")
	tr.NoError(t, err)
	var files int
	fmt.Sscan(one(service, "Service.LimitNOFILE"), &files)
	assert.Greater(t, files, connections+1000)
	assert.Equal(t, fmt.Sprintf("%d %d", exitUsage, exitConfig), one(service, "Service.RestartPreventExitStatus"))

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("there is no systemd-analyze, which would look at the rest")
		return
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"redlock.service": serviceText, "redlock.socket": socketText} {
		text = strings.ReplaceAll(text, "/usr/local/bin/redlock", self(t))
		tr.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--recursive-errors=no", filepath.Join(dir, "redlock.service"), filepath.Join(dir, "redlock.socket")).CombinedOutput()
	assert.NoError(t, err, string(out))
	for _, complaint := range []string{"Unknown key", "Failed to parse", "ignoring", "Unknown section"} {
		assert.NotContains(t, string(out), complaint)
	}
}
