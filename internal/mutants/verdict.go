package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// A verdict is the outcome of a mutant.
type verdict string

const (
	killed   verdict = "killed"
	survived verdict = "SURVIVED" // the test passed
	astray   verdict = "ASTRAY"   // something failed, but not as the mutant says
	broken   verdict = "BROKEN"   // the mutant did not get to its test
)

// A transcript is the output of go test -json.
type transcript struct {
	ended  map[string]string           // by test: run, pass, fail or skip
	said   map[string]*strings.Builder // by top-level test, its subtests included
	all    strings.Builder             // output of the test binary
	failed bool
	build  strings.Builder // of the compiler
	built  bool
}

// event is a line of go test -json (go doc test2json, go help buildjson).
type event struct {
	Action      string
	Test        string
	Output      string
	FailedBuild string
}

func read(stream []byte) *transcript {
	t := &transcript{ended: map[string]string{}, said: map[string]*strings.Builder{}, built: true}
	lines := bufio.NewScanner(bytes.NewReader(stream))
	lines.Buffer(nil, len(stream)+1)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil { // the go command's own words
			e = event{Action: "build-output", Output: lines.Text() + "\n"}
		}
		switch e.Action {
		case "build-output":
			t.build.WriteString(e.Output)
		case "build-fail":
			t.built = false
		case "output":
			t.all.WriteString(e.Output)
			top, _, _ := strings.Cut(e.Test, "/")
			if t.said[top] == nil {
				t.said[top] = &strings.Builder{}
			}
			t.said[top].WriteString(e.Output)
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

// output returns what a test printed; for a subtest, all of its test.
func (t *transcript) output(test string) string {
	top, _, _ := strings.Cut(test, "/")
	if b := t.said[top]; b != nil {
		return b.String()
	}
	return ""
}

var (
	panicked = regexp.MustCompile(`(?m)^panic: .*`)
	// The test binary's time limit, a bubble of testing/synctest in which all
	// goroutines wait, and the watchdogs of this repository's tests.
	hanging = regexp.MustCompile(`test timed out|deadlock|does not end`)
	seed    = regexp.MustCompile(`\bseed (\d+)\b`)
)

// judge returns a mutant's verdict, and the reason unless it was killed.
func judge(m *mutant, t *transcript) (v verdict, why string) {
	said := t.output(m.test)
	last := panicked.FindString(said)
	switch ended := t.ended[m.test]; {
	case !t.built:
		return broken, "it does not compile:\n" + t.build.String()
	case ended == "":
		return broken, fmt.Sprintf("%s did not run:\n%s", m.test, t.build.String()+t.all.String())
	case ended == "skip":
		return broken, fmt.Sprintf("%s was skipped:\n%s", m.test, said)
	case ended == "pass" && t.failed:
		return astray, fmt.Sprintf("%s passed, and something else failed:\n%s", m.test, t.all.String())
	case ended == "pass":
		return survived, m.test + " passed"
	case last != "" && hanging.MatchString(last) && m.hangs:
		return killed, ""
	case last != "":
		return astray, fmt.Sprintf("%s ended by a panic instead of failing:\n%s", m.test, said)
	case ended == "run":
		return astray, fmt.Sprintf("%s did not end:\n%s", m.test, t.all.String())
	case !strings.Contains(said, m.says):
		return astray, fmt.Sprintf("%s failed without saying %q:\n%s", m.test, m.says, said)
	}
	return killed, ""
}

// seedOf returns the seed that the test's simulation printed, or "".
func seedOf(said string) string {
	if found := seed.FindStringSubmatch(said); found != nil {
		return found[1]
	}
	return ""
}

// controlled returns the reason why a run without mutants does not show that the
// tests pass, or "".
func controlled(tests []string, t *transcript) string {
	for _, test := range tests {
		if ended := t.ended[test]; ended != "pass" {
			return fmt.Sprintf("%s did not pass (%q):\n%s", test, ended, t.build.String()+t.all.String())
		}
	}
	if t.failed {
		return t.all.String()
	}
	return ""
}
