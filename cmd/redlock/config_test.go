package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

// ours are the commands whose texts are not cobra's.
func ours() []*cobra.Command {
	root := newRoot()
	return append(root.Commands(), root)
}

// TestOneFileServesAllCommands: also those that have no flag for one of its
// settings, as status has none for the TTL.
func TestOneFileServesAllCommands(t *testing.T) {
	_, file, found := strings.Cut(configHelp, "  nodes:\n")
	tr.True(t, found)
	file, _, _ = strings.Cut(file, "\n\n")
	password := filepath.Join(t.TempDir(), "password")
	tr.NoError(t, os.WriteFile(password, []byte("hunter2\n"), 0o600))
	file = strings.ReplaceAll("  nodes:\n"+file+"\n", "/run/secrets/redis", password)
	for _, c := range ours() {
		if c.Flags().Lookup("config") == nil {
			continue
		}
		path := filepath.Join(t.TempDir(), "redlock.yaml")
		tr.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		tr.NoError(t, c.Flags().Set("config", path))
		login, err := configure(c.Flags(), nil)
		assert.NoError(t, err, c.Name())
		assert.Equal(t, credentials{username: "locks", password: "hunter2"}, login)

		tr.NoError(t, os.WriteFile(path, []byte(file+"  tll: 10s\n"), 0o600))
		_, err = configure(c.Flags(), nil)
		assert.ErrorContains(t, err, `unknown setting "tll"`, c.Name())
		assert.Equal(t, 1, strings.Count(err.Error(), " ttl,"), err)
	}
}
