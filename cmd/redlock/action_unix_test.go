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

// TestActionRunsUnderTheLock: the script of deploy/action runs the command while it holds the
// lock, and its flags apply. The runner of GitHub writes the step to a file for bash. The job's
// settings for its own builds are ignored, the command does not get the servers' passwords, and the
// signal of a cancelled job ends it.
func TestActionRunsUnderTheLock(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	step := at(document(t, "action/action.yml"), "runs.steps.1")
	inputs, built := map[string]string{}, t.TempDir() // redlock is built once, in built
	file := filepath.Join(built, "step.sh")
	tr.NoError(t, os.WriteFile(file, []byte(text(step, "run")+"\n"), 0o600))
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	tr.NoError(t, err)
	goCache, modules, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	prepare := func() *exec.Cmd {
		c := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-e", "-o", "pipefail", file)
		c.Env = append(os.Environ(), "GITHUB_ACTION_PATH="+filepath.Join(documents.Root(t), "deploy", "action"), "RUNNER_TEMP="+built,
			"HOME=", "GOCACHE="+goCache, "GOMODCACHE="+modules, "GOOS=plan9", "GOARCH=arm64", "GOFLAGS=-mod=vendor", "GOWORK=/none/go.work",
			"REDLOCK_NODE_TIMEOUT=8s", "REDLOCK_DIAL_TIMEOUT="+longEnough.String())
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

	inputs = map[string]string{"name": "deploy", "run": `echo "runs under $REDLOCK_NAME${REDLOCK_NODES:-}"`, "nodes": strings.Join(f.URLs(), ","), "flags": "--ttl 20s"}
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

	// A job that is cancelled during the build does not start the command.
	fake := t.TempDir()
	tr.NoError(t, os.WriteFile(filepath.Join(fake, "go"), []byte("#!/bin/sh\necho building\ncat\n"), 0o700))
	p = &process{Cmd: prepare()}
	p.Env = append(p.Env, "PATH="+fake+":"+os.Getenv("PATH"))
	build, err := p.StdinPipe()
	tr.NoError(t, err)
	p.begin(t).says(t, "building")
	p.signal(t, syscall.SIGINT)
	tr.NoError(t, build.Close())
	assert.Equal(t, job.SignalCode(syscall.SIGINT), p.code(t))

	inputs["run"] = "false; echo on"
	code, said = act()
	assert.Equal(t, 1, code)
	assert.NotContains(t, said, "on\n")
}

// TestComposeFileServes: the command line in the file is valid, and the program may use the socket.
func TestComposeFileServes(t *testing.T) {
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
