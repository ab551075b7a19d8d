package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheCommandHidesPasswords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want []string }{
		{[]string{"--nodes", "redis://u:s3cret@a:1,redis://b:1"}, []string{"--nodes", "redis://u:xxxxx@a:1,redis://b:1"}},
		{[]string{"--nodes=redis://b:1,redis://:s3=cret@a:1/2"}, []string{"--nodes=redis://b:1,redis://:xxxxx@a:1/2"}},
		{[]string{"-nodes=unix://:s3cret@/path"}, []string{"-nodes=unix://:xxxxx@/path"}},
		{[]string{"--nodes", "rediss://u:s3@cret@a:1"}, []string{"--nodes", "rediss://u:xxxxx@a:1"}},
		{[]string{"--nodes", "redis://:s3'cret$@a"}, []string{"--nodes", "redis://:xxxxx@a"}},
	} {
		assert.Equal(t, "go -C bench run . "+strings.Join(c.want, " "), commandLine(c.args))
	}
}

func TestTheCommandIsReadableWhereItNeedsNoQuotes(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "go -C bench run . --nodes process --sweep=callers=1,4 --fault 'kill 2 at 5s for 5s' --fail-if 'p99>50ms'",
		commandLine([]string{"--nodes", "process", "--sweep=callers=1,4", "--fault", "kill 2 at 5s for 5s", "--fail-if", "p99>50ms"}))
}

func TestAShellReadsTheCommandBack(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	args := []string{
		"--subjects", "redquorum,redsync", "--fault", "kill 2 at 5s for 5s", "--fail-if=redsync.p99>=50ms", "--fail-if", "failed>1%",
		"--json", "", "--html=", "--profile", "~", "$HOME", "`id`", `a\b`, "it's", `"quoted"`, "(x)", "{a,b}", "[a-z]*?", "#no", "a;b&c|d<e>f",
		"new\nline", "tab\there", "!", "--svg=a b='c'", "ä", "'", "'''", "--nodes", "unix:///p?db=1,redis://a:1",
	}
	// A function of this name takes the program's place.
	script := `go() { printf '%s\0' "$@"; }; ` + commandLine(args)
	out, err := exec.CommandContext(t.Context(), sh, "-c", script).Output()
	require.NoError(t, err, script)
	assert.Equal(t, append([]string{"-C", "bench", "run", "."}, args...), strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
}
