package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
)

// TestChangedPasswordIsReadAgain: while a lock is held, the password is read again from a file and
// from a command.
func TestChangedPasswordIsReadAgain(t *testing.T) {
	for _, source := range []string{"REDLOCK_PASSWORD_FILE=", "REDLOCK_PASSWORD_COMMAND=cat "} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, fleet.Process, 1)
			file := filepath.Join(t.TempDir(), "password")
			change := func(to string) {
				tr.NoError(t, os.WriteFile(file, []byte(to+"\n"), 0o600))
				ask(t, f.URLs()[0], "ACL", "SETUSER", "app", "on", "resetpass", ">"+to, "~*", "&*", "+@all")
				ask(t, f.URLs()[0], "CLIENT", "KILL", "USER", "app")
			}
			change("first")
			p := command(t, f.URLs(), "run", "--ttl", "20s", "--kill-after", "0s", "job", "--", "cat")
			p.Env = append(p.Env, "REDLOCK_USERNAME=app", source+file)
			in, err := p.StdinPipe()
			tr.NoError(t, err)
			p.begin(t)
			eventually(t, "it is held", func() bool { return has(t, f.URLs()[0], "job") != "" })
			change("second")
			left := ask(t, f.URLs()[0], "PTTL", "job").(int64)
			eventually(t, "it is renewed on a new connection", func() bool {
				before := left
				left = ask(t, f.URLs()[0], "PTTL", "job").(int64)
				return before > 0 && left > before
			})
			in.Close()
			assert.Zero(t, p.code(t), p.stderr.String())
		})
	}
}
