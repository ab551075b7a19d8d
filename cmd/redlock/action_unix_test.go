//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/fleet"
)

// document reads a YAML file of deploy.
func document(t *testing.T, path string) (d any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(documents.Root(t), "deploy", path))
	tr.NoError(t, err)
	tr.NoError(t, yaml.Unmarshal(raw, &d))
	return d
}

// TestTheActionRunsUnderTheLock: the script of deploy/action runs the command while it holds the lock, and its flags
// count. The runner of GitHub writes the step to a file for bash. What the job sets for its own builds does not
// count, the command does not get the servers' passwords, and the signal of a cancelled job ends it.
func TestTheActionRunsUnderTheLock(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	step := at(document(t, "action/action.yml"), "runs.steps.1")
	inputs, built := map[string]string{}, t.TempDir() // where redlock is built once
	file := filepath.Join(built, "step.sh")
	tr.NoError(t, os.WriteFile(file, []byte(text(step, "run")+"\n"), 0o600))
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	tr.NoError(t, err)
	goCache, modules, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	prepare := func() *exec.Cmd {
		c := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-e", "-o", "pipefail", file)
		c.Env = append(os.Environ(), "GITHUB_ACTION_PATH="+filepath.Join(documents.Root(t), "deploy", "action"), "RUNNER_TEMP="+built,
			"HOME=", "GOCACHE="+goCache, "GOMODCACHE="+modules, "GOOS=plan9", "GOARCH=arm64", "GOFLAGS=-mod=vendor", "GOWORK=/none/go.work")
		for name, value := range at(step, "env").(map[string]any) {
			input := value.(string)[len("${{ inputs.") : len(value.(string))-len(" }}")]
			tr.NotNil(t, at(document(t, "action/action.yml"), "inputs."+input))
			c.Env = append(c.Env, name+"="+inputs[input])
		}
		return c
	}
	act := func() (code int, said string) {
		c := prepare()
		out, err := c.CombinedOutput()
		if err != nil {
			tr.ErrorAs(t, err, new(*exec.ExitError))
		}
		return c.ProcessState.ExitCode(), string(out)
	}

	code, said := act()
	assert.NotZero(t, code)
	assert.Contains(t, said, "the input name is empty")

	inputs = map[string]string{"name": "deploy", "run": `echo "runs under $REDLOCK_NAME${REDLOCK_NODES:-}"`, "nodes": strings.Join(f.URLs(), ","), "flags": "--ttl 1s"}
	code, said = act()
	assert.Zero(t, code, said)
	assert.Contains(t, said, "runs under deploy\n")

	lock := hold(t, f, "deploy")
	inputs["flags"] += " --no-wait"
	code, _ = act()
	assert.Equal(t, exitHeld, code)
	inputs["flags"] += " -E 0"
	code, said = act()
	assert.Zero(t, code)
	assert.NotContains(t, said, "runs under")
	tr.NoError(t, lock.Release(t.Context()))

	inputs["run"], inputs["flags"] = "echo ready; sleep 1000; echo on", ""
	p := &process{Cmd: prepare()}
	p.begin(t).says(t, "ready")
	p.signal(t, syscall.SIGTERM)
	assert.Equal(t, job.SignalCode(syscall.SIGTERM), p.code(t))
	hold(t, f, "deploy").Release(t.Context())

	inputs["run"] = "false; echo on"
	code, said = act()
	assert.Equal(t, 1, code)
	assert.NotContains(t, said, "on\n")
}

// TestTheComposeFileServes: its command line is one of redlock's, and the program may use the socket.
func TestTheComposeFileServes(t *testing.T) {
	t.Parallel()
	d := document(t, "compose/compose.yaml")
	var args []string
	for _, arg := range list(d, "services.redlock.command") {
		args = append(args, arg.(string))
	}
	assert.NoError(t, parses(args))
	assert.Contains(t, args, "--listen=unix:"+text(d, "services.app.environment.REDLOCK_SOCKET"))
	assert.Equal(t, list(d, "services.redlock.volumes"), list(d, "services.app.volumes"))
	assert.Contains(t, text(d, "volumes.redlock.driver_opts.o"), "gid="+text(d, "services.app.group_add.0"))
}
