package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

// TestAPasswordThatChanges is read again, from a file and from a command, while a lock is held.
func TestAPasswordThatChanges(t *testing.T) {
	need.Kind(t, fleet.Process)
	need.Program(t, "sh")
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: 1, Volatile: true})
	tr.NoError(t, err)
	defer f.Close()
	admin, err := redis.DialURL(f.URLs()[0])
	tr.NoError(t, err)
	defer admin.Close()
	file := filepath.Join(t.TempDir(), "password")
	change := func(to string) {
		tr.NoError(t, os.WriteFile(file, []byte(to+"\n"), 0o600))
		_, err := admin.Do("ACL", "SETUSER", "app", "on", "resetpass", ">"+to, "~*", "&*", "+@all")
		tr.NoError(t, err)
		_, err = admin.Do("CLIENT", "KILL", "USER", "app")
		tr.NoError(t, err)
	}
	change("first")
	held := "while [ -e " + file + ".go ]; do sleep 0.05; done"
	for _, source := range [][2]string{{"REDLOCK_PASSWORD_FILE", file}, {"REDLOCK_PASSWORD_COMMAND", "cat " + file}} {
		t.Setenv("REDLOCK_USERNAME", "app")
		t.Setenv(source[0], source[1])
		tr.NoError(t, os.WriteFile(file+".go", nil, 0o600))
		var all sync.WaitGroup
		all.Go(func() {
			code, out, errs := redlockCommand(t, "run", "--memory-guard=false", "--ttl", "4s", "--node", f.URLs()[0], "job", "--", "sh", "-c", held)
			assert.Zero(t, code, out+errs)
		})
		tr.Eventually(t, func() bool { n, err := redis.Int(admin.Do("EXISTS", "job")); return err == nil && n == 1 }, 10*time.Second, 10*time.Millisecond)
		change("second of " + source[0])
		time.Sleep(5 * time.Second) // more than the TTL
		n, err := redis.Int(admin.Do("EXISTS", "job"))
		tr.NoError(t, err)
		assert.Equal(t, 1, n, "%s: it is held", source[0])
		tr.NoError(t, os.Remove(file+".go"))
		all.Wait()
		t.Setenv(source[0], "")
	}
}

func TestWhatAPasswordCommandPrintsIsReused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no /bin/sh here")
	}
	runs := filepath.Join(t.TempDir(), "runs")
	c := &passwordCommand{line: "echo run >>" + runs + "; echo secret"}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			password, err := c.output(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, "secret", password)
		})
	}
	all.Wait()
	text, err := os.ReadFile(runs)
	tr.NoError(t, err)
	assert.Equal(t, "run\n", string(text))

	c.last.began = c.last.began.Add(-2 * passwordReused)
	_, err = c.output(t.Context())
	tr.NoError(t, err)
	text, err = os.ReadFile(runs)
	tr.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(text), "run"))
}

func TestAPasswordCommandThatFails(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no /bin/sh here")
	}
	for line, says := range map[string]string{"echo secret; exit 3": "exit status 3", "true": "printed nothing"} {
		_, err := (&passwordCommand{line: line}).output(t.Context())
		assert.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "secret")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	slow := &passwordCommand{line: "sleep 0.1; echo late"}
	_, err := slow.output(ctx)
	tr.ErrorIs(t, err, context.Canceled)
	password, err := slow.output(t.Context())
	tr.NoError(t, err)
	assert.Equal(t, "late", password, "it went on")
}
