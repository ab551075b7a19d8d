package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
)

// settled returns the settings from a command line, the environment and a file.
func settled(t *testing.T, file string, env map[string]string, args ...string) (*servers, error) {
	t.Helper()
	isolate(t, file, env)
	c := &cobra.Command{Use: "test"}
	s := serverFlags(c)
	tr.NoError(t, c.ParseFlags(args))
	return s, s.settle()
}

func TestSettingsComeFromFlagsThenEnvironmentThenFile(t *testing.T) {
	const file = "nodes: [redis://file:1, redis://file:2]\nprefix: file\nmax_ttl: 1m\nmemory_guard: false\ntls_ca: /file\n"
	s, err := settled(t, file, nil)
	tr.NoError(t, err)
	assert.Equal(t, []string{"redis://file:1", "redis://file:2"}, s.targets.nodes)
	assert.Equal(t, "file", s.locking.prefix)
	assert.Equal(t, time.Minute, s.locking.maxTTL)
	assert.False(t, s.locking.guard)
	assert.Equal(t, "/file", s.reach.tls.ca)

	env := map[string]string{
		"REDLOCK_NODES": "redis://env:1, redis://env:2\nredis://env:3", "REDLOCK_PREFIX": "env", "REDLOCK_MAX_TTL": "2m", "REDLOCK_MEMORY_GUARD": "true",
	}
	s, err = settled(t, file, env)
	tr.NoError(t, err)
	assert.Equal(t, []string{"redis://env:1", "redis://env:2", "redis://env:3"}, s.targets.nodes)
	assert.Equal(t, "env", s.locking.prefix)
	assert.Equal(t, 2*time.Minute, s.locking.maxTTL)
	assert.True(t, s.locking.guard)
	assert.Equal(t, "/file", s.reach.tls.ca, "what the environment does not say is left to the file")

	s, err = settled(t, file, env, "--node", "redis://flag", "--prefix", "", "--memory-guard=false")
	tr.NoError(t, err)
	assert.Equal(t, []string{"redis://flag"}, s.targets.nodes)
	assert.Empty(t, s.locking.prefix, "an empty flag is a flag")
	assert.False(t, s.locking.guard)
	assert.Equal(t, 2*time.Minute, s.locking.maxTTL)
}

// TestNullInTheFileSetsNothing: as a text, null would be a password, or a prefix that separates the
// locks from all others.
func TestNullInTheFileSetsNothing(t *testing.T) {
	for _, null := range []string{"null", "~", "", "!!null ''"} {
		file := strings.ReplaceAll("nodes: redis://a\nprefix: NULL\nmax_ttl: NULL\nusername: NULL\npassword: NULL\npassword_file: NULL\n", "NULL", null)
		s, err := settled(t, file, nil)
		tr.NoError(t, err, null)
		assert.Empty(t, s.locking.prefix, null)
		assert.Zero(t, s.locking.maxTTL, null)
		assert.False(t, s.reach.login.areSet(), null)
	}
	s, err := settled(t, "nodes: redis://a\nprefix: 'null'\n", nil)
	tr.NoError(t, err)
	assert.Equal(t, "null", s.locking.prefix, "in quotes it is text")
	_, err = settled(t, "nodes: [redis://a, null]\n", nil)
	assert.ErrorContains(t, err, "nodes: must be a list of plain values")
	_, err = settled(t, "nodes: redis://a\nprefx: null\n", nil)
	assert.ErrorContains(t, err, `unknown setting "prefx"`)
}

func TestCredentialsApplyToURLsWithoutAny(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	tr.NoError(t, os.WriteFile(secret, []byte("p@ss/word\n"), 0o600))
	s, err := settled(t, "nodes: [redis://a, redis://own:word@b]\nusername: locks\npassword_file: "+secret, nil)
	tr.NoError(t, err)
	urls, err := s.reach.login.in(t.Context(), s.targets.nodes)
	tr.NoError(t, err)
	assert.Equal(t, []string{"redis://locks:p%40ss%2Fword@a", "redis://own:word@b"}, urls)
	s, err = settled(t, "nodes: redis://a", map[string]string{"REDLOCK_PASSWORD": "alone"})
	tr.NoError(t, err)
	_, password, err := s.reach.login.current(t.Context(), "a:6379")
	tr.NoError(t, err)
	assert.Equal(t, "alone", password)
}

// TestPasswordFromAPipeIsReadOnce: with --password-file <(COMMAND), a second read is impossible.
func TestPasswordFromAPipeIsReadOnce(t *testing.T) {
	r, w, err := os.Pipe()
	tr.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	path := fmt.Sprintf("/dev/fd/%d", r.Fd())
	if _, err := os.Stat(path); err != nil {
		t.Skip("pipes have no names here")
	}
	_, err = w.WriteString("word\n")
	tr.NoError(t, err)
	tr.NoError(t, w.Close())
	s, err := settled(t, "nodes: redis://a\npassword_file: "+path, nil)
	tr.NoError(t, err)
	for range 2 {
		_, password, err := s.reach.login.current(t.Context(), "a:6379")
		tr.NoError(t, err)
		assert.Equal(t, "word", password)
	}
}

// TestBrokenPasswordFileKeepsTheOldPassword: the file may be read while it is being written.
func TestBrokenPasswordFileKeepsTheOldPassword(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	is := func(text string) { tr.NoError(t, os.WriteFile(secret, []byte(text), 0o600)) }
	is("first\n")
	s, err := settled(t, "nodes: redis://a\npassword_file: "+secret, nil)
	tr.NoError(t, err)
	var said strings.Builder
	s.reach.login.reread.Stderr = &said
	for _, step := range [][2]string{{"first\n", "first"}, {"second", "second"}, {"\n", "second"}, {"third\n", "third"}} {
		is(step[0])
		for range 2 {
			_, password, err := s.reach.login.current(t.Context(), "a:6379")
			tr.NoError(t, err)
			assert.Equal(t, step[1], password)
		}
	}
	assert.Equal(t, "redlock: password file "+secret+" is empty; the content that was read before stays in use\n", said.String())
}

// ours are the commands whose texts are our own, not cobra's.
func ours() []*cobra.Command {
	root := newRoot()
	return append(root.Commands(), root)
}

// TestOneFileServesAllCommands: a command accepts a file even if it has no flag for one of the
// settings, such as the TTL for status.
func TestOneFileServesAllCommands(t *testing.T) {
	_, file, found := strings.Cut(newConfigHelp().Long, "  nodes:\n")
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
		from, err := configure(c.Flags(), nil)
		tr.NoError(t, err)
		login, err := credentialsOf(from)
		assert.NoError(t, err, c.Name())
		assert.Equal(t, "hunter2", login.reread.Current())
		login.reread, login.userFrom = nil, ""
		assert.Equal(t, credentials{username: "locks", file: password}, login)

		tr.NoError(t, os.WriteFile(path, []byte(file+"  tll: 10s\n"), 0o600))
		_, err = configure(c.Flags(), nil)
		assert.ErrorContains(t, err, `unknown setting "tll"`, c.Name())
		assert.Equal(t, 1, strings.Count(err.Error(), " ttl,"), err)
	}
}

// TestServersAreNamedByOneFlagOrMany: either flag name takes one server or all servers.
func TestServersAreNamedByOneFlagOrMany(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	a, b, c := f.URLs()[0], f.URLs()[1], f.URLs()[2]
	for _, args := range [][]string{
		{"--node", a, "--node", b, "--node", c}, {"--node", a + "," + b + "," + c}, {"--nodes", a + ", " + b, "--node", c + ","},
		{"--nodes=" + a + " " + b + "\n" + c},
	} {
		out := succeeds(t, append([]string{"status", "job", "--dial-timeout", longEnough.String()}, args...)...)
		assert.Equal(t, 5, strings.Count(out, "\n"), out)
	}
	assert.Equal(t, []string{"redis://:a,b@c", "unix:///d"}, splitURLs("redis://:a,b@c,,unix:///d"), "a comma may be in a password")
	assert.Equal(t, []string{"redis://:a;b@c", "valkeys://d"}, splitURLs("redis://:a;b@c;\n valkeys://d;"), "and a semicolon")
}
