package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// A transcript is the output of go test -json.
type transcript struct {
	ended  map[string]string // by test: run, pass, fail or skip
	said   strings.Builder   // by one top-level test, its subtests included
	all    strings.Builder   // by the compiler and the test binary
	failed bool
	built  bool
}

// event is a line of go test -json (go doc test2json, go help buildjson).
type event struct {
	Action      string
	Test        string
	Output      string
	FailedBuild string
}

// read returns the transcript of a test, or of some if test is "".
func read(stream []byte, test string) *transcript {
	t := &transcript{ended: map[string]string{}, built: true}
	top, _, _ := strings.Cut(test, "/")
	for line := range bytes.Lines(stream) {
		var e event
		if json.Unmarshal(line, &e) != nil { // the go command's own words
			e = event{Action: "build-output", Output: string(line)}
		}
		t.all.WriteString(e.Output)
		switch e.Action {
		case "build-fail":
			t.built = false
		case "output":
			if in, _, _ := strings.Cut(e.Test, "/"); in == top {
				t.said.WriteString(e.Output)
			}
		case "run", "pass", "fail", "skip":
			switch {
			case e.Test != "":
				t.ended[e.Test] = e.Action
			case e.Action == "fail":
				t.failed = true
				t.built = t.built && e.FailedBuild == ""
			}
		}
	}
	return t
}

var (
	panicked = regexp.MustCompile(`(?m)^panic: .*`)
	// The test binary's time limit, a bubble of testing/synctest in which all
	// goroutines wait, and the watchdogs of this repository's tests.
	hanging = regexp.MustCompile(`test timed out|deadlock|does not end`)
	// What a test prints of itself and of subtests that pass.
	passing = regexp.MustCompile(`(?m)^ *(===|--- PASS|--- SKIP).*\n`)
)

// judge returns the reason why a mutant was not killed, or "".
func judge(m *mutant, t *transcript) string {
	said := t.said.String()
	last := panicked.FindString(said)
	switch ended := t.ended[m.test]; {
	case !t.built:
		return "it does not compile:\n" + t.all.String()
	case ended == "":
		return fmt.Sprintf("%s did not run:\n%s", m.test, t.all.String())
	case ended == "skip":
		return fmt.Sprintf("%s was skipped:\n%s", m.test, said)
	case ended == "pass" && t.failed:
		return fmt.Sprintf("%s passed, and something else failed:\n%s", m.test, t.all.String())
	case ended == "pass":
		return m.test + " passed"
	case last != "" && hanging.MatchString(last) && m.hangs:
		return ""
	case last != "":
		return fmt.Sprintf("%s ended by a panic instead of failing:\n%s", m.test, said)
	case ended == "run":
		return fmt.Sprintf("%s did not end:\n%s", m.test, t.all.String())
	case !strings.Contains(said, m.says):
		return fmt.Sprintf("%s failed without saying %q:\n%s", m.test, m.says, said)
	}
	return ""
}

// controlled returns the reason why a run without mutants does not show that the
// tests pass, or "".
func controlled(tests []string, t *transcript) string {
	for _, test := range tests {
		if ended := t.ended[test]; ended != "pass" {
			return fmt.Sprintf("%s did not pass (%q):\n%s", test, ended, t.all.String())
		}
	}
	if t.failed {
		return t.all.String()
	}
	return ""
}

// shorten keeps the beginning of a failed test's output.
func shorten(s string) string {
	const most = 20
	lines := strings.SplitN(strings.TrimRight(passing.ReplaceAllString(s, ""), "\n"), "\n", most+1)
	if len(lines) > most {
		lines[most] = "    ..."
	}
	return strings.Join(lines, "\n")
}
