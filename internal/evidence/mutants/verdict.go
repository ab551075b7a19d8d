package main

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	panicked = regexp.MustCompile(`(?m)^panic: .*`)
	// The test binary's time limit, a bubble of testing/synctest in which all
	// goroutines wait, and the watchdogs of this repository's tests.
	hanging = regexp.MustCompile(`test timed out|deadlock|does not end`)
	// What a test prints of itself and of subtests that pass.
	passing = regexp.MustCompile(`(?m)^ *(===|--- PASS|--- SKIP).*\n`)
	failed  = regexp.MustCompile(`(?m)^FAIL\b`)
)

// outcome returns PASS, FAIL or SKIP for a test of which go test -v said so, and "" for one that
// did not run, or not to its end.
func outcome(said, test string) string {
	line := regexp.MustCompile(`(?m)^ *--- (\w+): ` + regexp.QuoteMeta(test) + ` \(`).FindStringSubmatch(said)
	if line == nil {
		return ""
	}
	return line[1]
}

// judge returns the reason why a mutant was not killed, or "". said is the output of go test -v.
func judge(m *mutant, said string) string {
	ended, last := outcome(said, m.test), panicked.FindString(said)
	switch {
	case ended == "PASS" || ended == "SKIP":
		return fmt.Sprintf("%s ended with %s:\n%s", m.test, ended, said)
	case last != "" && hanging.MatchString(last) && m.hangs:
		return ""
	case last != "":
		return fmt.Sprintf("%s ended by a panic instead of failing:\n%s", m.test, said)
	case ended == "":
		return fmt.Sprintf("%s did not run, or not to its end:\n%s", m.test, said)
	case !strings.Contains(said, m.says):
		return fmt.Sprintf("%s failed without saying %q:\n%s", m.test, m.says, said)
	}
	return ""
}

// controlled returns the reason why a run without mutants does not show that the
// tests pass, or "".
func controlled(tests []string, said string) string {
	for _, test := range tests {
		if ended := outcome(said, test); ended != "PASS" {
			return fmt.Sprintf("%s did not pass (%q):\n%s", test, ended, said)
		}
	}
	if failed.MatchString(said) {
		return said
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
