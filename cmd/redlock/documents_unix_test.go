//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// calls returns the arguments of a command line that runs one of our commands.
func calls(c documents.Command) (args []string, yes bool) {
	if args, yes = c.Calls("go run ./cmd/redlock"); yes {
		return args, true
	}
	return c.Calls("redlock")
}

// TestDocumentsUseExistingFlags: each redlock command line in a document can be parsed, even a bare
// subcommand in a sentence.
func TestDocumentsUseExistingFlags(t *testing.T) {
	parsed := 0
	for _, c := range documents.Commands(t) {
		if args, ours := calls(c); ours {
			parsed++
			assert.NoError(t, parses(args), c.Place())
		}
	}
	assert.Greater(t, parsed, 50)
}

// parses returns an error unless args are a subcommand with valid flags.
func parses(args []string) error {
	root := newRoot()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	c, args, err := root.Find(args)
	switch {
	case err != nil:
		return err
	case c == root:
		return noCommand(root, args)
	}
	return c.ParseFlags(args)
}

// TestSomeFlagsExcludeEachOther: redlock run refuses exactly these pairs of flags.
func TestSomeFlagsExcludeEachOther(t *testing.T) {
	samples := map[string][]string{
		"--wait": {"--wait=1s"}, "--no-wait": {"--no-wait"}, "--shared": {"--shared"}, "--permits": {"--permits=3"}, "--weight": {"--permits=3", "--weight=2"},
		"--and": {"--and=b"}, "--fair": {"--fair"}, "--fenced": {"--fenced"}, "--once-per": {"--once-per=1h"}, "--at-least-apart": {"--at-least-apart=1h"},
		"--quiet": {"--quiet"}, "--verbose": {"--verbose"}, "--node": {"--node=rediss://127.0.0.1:1"}, "--group": {"--group=a=rediss://127.0.0.1:1"}, "--embedded": {"--embedded"},
		"--min-hold": {"--min-hold=1s"}, "--retries": {"--retries=1"}, "--owner": {"--owner=x"},
	}
	t.Setenv("REDLOCK_NODES", "rediss://127.0.0.1:1")
	excluded := map[[2]string]bool{}
	for flag, others := range map[string]string{
		"--wait":           "--no-wait",
		"--shared":         "--fenced --permits --weight --and",
		"--permits":        "--and --fair",
		"--weight":         "--and --fair --fenced",
		"--fenced":         "--and",
		"--once-per":       "--at-least-apart --shared --permits --weight --and",
		"--at-least-apart": "--shared --permits --weight --and",
		"--quiet":          "--verbose",
		"--node":           "--group --embedded",
		"--group":          "--embedded",
	} {
		for other := range strings.FieldsSeq(others) {
			excluded[[2]string{flag, other}], excluded[[2]string{other, flag}] = true, true
		}
	}
	for a, first := range samples {
		for b, second := range samples {
			isOne := a == b || slices.Contains(first, second[0]) || slices.Contains(second, first[0])
			if !isOne {
				// The flags are checked before the file is read, so the file may be missing.
				_, _, said := redlockCommand(t, slices.Concat([]string{"run", "--tls-ca=/none"}, first, second, []string{"a", "--", "true"})...)
				assert.Equal(t, excluded[[2]string{a, b}], !strings.Contains(said, "--tls-ca"), "%s %s: %s", a, b, said)
			}
			delete(excluded, [2]string{a, b})
		}
	}
	assert.Empty(t, excluded, "there are no such flags")
	code, _, said := redlockCommand(t, "serve", "--token-file=a", "--tokens=b")
	assert.Equal(t, exitUsage, code, said)
}

// otherwise has the command lines that TestCommandsInDocumentsRun does not run, and the reason for
// each.
var otherwise = map[string]string{
	"redlock nodes &":                              "takes ports that this machine may need; TestSignalsEndTheTools runs it on others",
	"redlock serve &":                              "does not end; TestServeListensAtASocket runs it, and TestCurlInDocumentsGetsAnAnswer what asks it",
	"redlock status nightly --watch":               "does not end; TestSignalsEndTheTools interrupts it",
	"redlock reset":                                "asks at a terminal; reset_test.go answers",
	"redlock doctor":                               "finds fault with the servers of this test, which are no Redis; doctor_test.go runs it",
	"redlock release nightly --value 4be2f09a1c77": "needs a dead holder with that value; release_test.go has one",
	"go run ./cmd/redlock demo":                    "takes ten seconds; .ci/run has it",
}

// TestDocumentsNameTheServersOfNodes: readers export the output of redlock nodes.
func TestDocumentsNameTheServersOfNodes(t *testing.T) {
	ports, err := choosePorts(5, 7001)
	tr.NoError(t, err)
	var urls []string
	for _, port := range ports {
		urls = append(urls, fmt.Sprintf("redis://127.0.0.1:%d", port))
	}
	exported := 0
	for _, c := range documents.Commands(t) {
		if strings.HasPrefix(c.Text, "export REDLOCK_NODES=") && documents.RunElsewhere[c.Document] == "" {
			exported++
			assert.Contains(t, invitation(fleet.Embedded, urls, nil), "  "+c.Text+"\n", c.Place())
		}
	}
	assert.Positive(t, exported)
	assert.Equal(t, "7001", newNodes().Flags().Lookup("port").DefValue)
	assert.Equal(t, "5", newNodes().Flags().Lookup("number").DefValue)
}

// tools are the programs that documents run under a lock. The test replaces them with programs that
// print their lock.
var tools = []string{
	"terraform", "tofu", "flyway", "ssh", "manage.py", "deploy.sh", "convert", "train", "report", "billing", "cleanup",
}

// TestCommandsInDocumentsRun: each whole redlock command line, in a shell's block, a crontab, a
// systemd unit or a container's command, runs and ends with 0, or with the code in its comment. The
// command under its lock runs, too.
func TestCommandsInDocumentsRun(t *testing.T) {
	t.Parallel()
	left := map[string]bool{}
	for text := range otherwise {
		left[text] = true
	}
	f := startFleet(t, fleet.Embedded, 5)
	dir := toolbox(t)
	ran := 0
	for _, c := range documents.Commands(t) {
		_, ours := calls(c)
		_, not := otherwise[c.Text]
		delete(left, c.Text)
		if !ours || !c.Whole || not || documents.RunElsewhere[c.Document] != "" {
			continue
		}
		ran++
		code, said := inShell(t, dir, c.Text, nodesEnv(f.URLs()), fmt.Sprintf("REDLOCK_PREFIX=%d:", ran))
		assert.Equal(t, c.Exit, code, "%s\n%s", c.Place(), said)
		for _, tool := range tools {
			if _, command, _ := strings.Cut(c.Text, " -- "); strings.Contains(command, tool) {
				assert.Contains(t, said, tool+" runs under ", c.Place())
			}
		}
	}
	assert.Greater(t, ran, 12)
	assert.Empty(t, left, "no document has these any more")
}

// TestLateStartsInDocumentsNameTheirTick: a late start that a shell passes its scheduled time runs
// in the slot of that time, and leaves the next slot alone, whatever date(1) says.
func TestLateStartsInDocumentsNameTheirTick(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	dir := toolbox(t)
	tr.NoError(t, os.WriteFile(filepath.Join(dir, "date"), []byte("#!/bin/sh\necho $NOW\n"), 0o755))
	zone, err := time.LoadLocation("Europe/Berlin")
	tr.NoError(t, err)
	now := time.Now().In(zone)
	hour, slot := now.Truncate(time.Hour), now.Truncate(5*time.Minute)
	evening := time.Date(now.Year(), now.Month(), now.Day()-1, 23, 0, 0, 0, zone)
	next := time.Date(now.Year(), now.Month(), now.Day(), 23, 0, 0, 0, zone)
	type start struct {
		at   time.Time
		runs bool
	}
	starts := map[string][]start{
		"--once-per 1h":  {{hour.Add(10 * time.Minute), true}, {hour.Add(40 * time.Minute), false}, {hour.Add(-10 * time.Minute), false}},
		"--once-per day": {{evening.Add(30 * time.Minute), true}, {evening.Add(100 * time.Minute), false}, {evening.Add(10 * time.Hour), false}, {next, true}},
		"--once-per 5m":  {{slot, true}, {slot, false}, {slot.Add(5 * time.Minute), true}},
	}
	for _, c := range documents.Commands(t) {
		if _, is := c.Calls("sh -c"); !is || !c.Whole {
			continue
		}
		for length, all := range starts {
			if !strings.Contains(c.Text, length) {
				continue
			}
			delete(starts, length)
			line := strings.NewReplacer("$$", "$", "%%", "%").Replace(c.Text)
			for _, s := range all {
				code, said := inShell(t, dir, line, nodesEnv(f.URLs()), fmt.Sprintf("REDLOCK_PREFIX=%d:", c.Line),
					fmt.Sprintf("NOW=%d", s.at.Unix()), fmt.Sprintf("JOB=my-report-%d", s.at.Unix()/60))
				assert.Equal(t, s.runs, strings.Contains(said, "report runs under"), "%v: %s\n%s", s.at, c.Place(), said)
				assert.Contains(t, []int{0, exitHeld}, code, said)
			}
		}
	}
	assert.Empty(t, starts)
}

// TestCurlInDocumentsGetsAnAnswer: each curl of a document gets, in the order of the document, an
// answer without a problem, from its own "redlock serve". $SESSION and $LEASE come from the last
// new session and the last lock.
func TestCurlInDocumentsGetsAnAnswer(t *testing.T) {
	t.Parallel()
	testenv.NeedProgram(t, "curl")
	f := startFleet(t, fleet.Embedded, 3)
	socket := filepath.Join(t.TempDir(), "s")
	startServe(t, f, "--listen", "unix:"+socket, "--ttl", "10m", "--node-timeout", "8s")
	var last struct{ Session, Lease string }
	asked := 0
	for _, c := range documents.Commands(t) {
		if _, is := c.Calls("curl"); !is || !c.Whole || documents.RunElsewhere[c.Document] != "" {
			continue
		}
		asked++
		line, exit := strings.ReplaceAll(c.Text, "/run/redlock.sock", socket), c.Exit
		isStream := strings.Contains(line, "event-stream")
		if isStream { // the stream lasts for minutes
			line, exit = line+" --max-time 8", 28
		}
		code, said := inShell(t, filepath.Dir(socket), line+" --silent --write-out '\n%{http_code}'", "SESSION="+last.Session, "LEASE="+last.Lease)
		assert.Equal(t, exit, code, "%s\n%s", c.Place(), said)
		end := strings.LastIndex(said, "\n") + 1
		body, status := said[:end], said[end:]
		if exit == 0 {
			assert.Regexp(t, `^20[0-4]$`, status, "%s\n%s", c.Place(), said)
		}
		if isStream {
			assert.Contains(t, said, "event: state\ndata: {", c.Place())
		}
		if exit == 22 {
			assert.Equal(t, "423", status, c.Place())
		}
		now := last
		json.Unmarshal([]byte(body), &now)
		last.Lease = now.Lease // decoding keeps the fields that the answer lacks
		if strings.Contains(line, "/v1/sessions ") {
			last.Session = now.Session
		}
	}
	assert.Greater(t, asked, 15)
}

// toolbox returns a folder with the tools and with redlock, which is this test's program. Commands
// that call ./tool run there.
func toolbox(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	put := func(name, script string) {
		tr.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	for _, tool := range tools {
		put(tool, `echo "`+tool+` runs under $REDLOCK_NAME"`)
	}
	put("redlock", commandEnv+`=1 exec "`+self(t)+`" "$@"`)
	return dir
}

// inShell runs a command line in the folder of the tools.
func inShell(t *testing.T, dir, line string, env ...string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), endless)
	defer cancel()
	line = strings.NewReplacer("/usr/local/bin/", dir+"/", "go run ./cmd/redlock", "redlock").Replace(line)
	c := exec.CommandContext(ctx, "sh", "-euc", line)
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CI_JOB_URL=https://ci.example/7",
		"REDLOCK_MEMORY_GUARD=false", "REDLOCK_NODE_TIMEOUT=8s", "REDLOCK_DIAL_TIMEOUT="+longEnough.String(), "REDLOCK_CONFIG=/dev/null")
	c.Env = append(c.Env, env...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	tr.NoError(t, ctx.Err(), "%s\n%s", line, out.String())
	if c.ProcessState == nil {
		tr.NoError(t, err)
	}
	return c.ProcessState.ExitCode(), out.String()
}
