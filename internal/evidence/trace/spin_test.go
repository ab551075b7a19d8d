package trace

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/testenv"
)

// tick is the length of a tick of lock.pml in nanoseconds. All steps between two ticks have the
// same time.
const tick = 1000

// sentences are the steps that lock.pml prints.
var sentences = []struct {
	form *regexp.Regexp
	kind Kind
}{
	{regexp.MustCompile(`^(?P<claim>[A-C]) asks all nodes$`), Asks},
	{regexp.MustCompile(`^(?P<claim>[A-C]) holds the lock for (?P<ticks>\d+) ticks$`), Holds},
	{regexp.MustCompile(`^(?P<claim>[A-C]) asks all nodes for an extension$`), ""},
	{regexp.MustCompile(`^(?P<claim>[A-C]) has extended the lock to (?P<ticks>\d+) ticks$`), Extended},
	{regexp.MustCompile(`^(?P<claim>[A-C]) stops, and asks all nodes to release$`), Stops},
	{regexp.MustCompile(`^node (?P<node>\d) grants (?P<claim>[A-C]) a key for \d+ ticks$`), Grants},
	{regexp.MustCompile(`^node (?P<node>\d) runs (?P<claim>[A-C])'s request late$`), Grants},
	{regexp.MustCompile(`^node (?P<node>\d), in quarantine, gives (?P<claim>[A-C]) a key$`), Grants},
	{regexp.MustCompile(`^node (?P<node>\d) extends (?P<claim>[A-C])'s key to \d+ ticks$`), Renews},
	{regexp.MustCompile(`^node (?P<node>\d) runs (?P<claim>[A-C])'s release of [A-C]'s key$`), Releases},
	{regexp.MustCompile(`^node (?P<node>\d) forgets its keys$`), Forgets},
	{regexp.MustCompile(`^node (?P<node>\d) starts again, with its keys$`), Restarts},
	{regexp.MustCompile(`^node \d loses [A-C]'s key, and nobody notices$`), ""},
}

// parse returns the history in the output of lock.pml, where a lock counts for this number of
// ticks.
func parse(t *testing.T, lines []string, believed int64) (events []Event) {
	t.Helper()
	now := int64(0)
	held := map[string]bool{}
	for _, line := range lines {
		if line == "a tick passes" {
			now += tick
			continue
		}
		e, known := Event{At: now}, false
		for _, s := range sentences {
			found := s.form.FindStringSubmatch(line)
			if found == nil {
				continue
			}
			known, e.Kind = true, s.kind
			part := func(name string) string {
				if i := s.form.SubexpIndex(name); i >= 0 {
					return found[i]
				}
				return "0"
			}
			number := func(name string) int64 {
				n, err := strconv.ParseInt(part(name), 10, 64)
				require.NoError(t, err)
				return n
			}
			switch e.Claim = part("claim"); s.kind {
			case Asks:
				e.Life = believed * tick
			case Holds, Extended:
				e.Until = now + number("ticks")*tick
				held[e.Claim] = true
			case Stops:
				if !held[e.Claim] {
					e.Kind = GivesUp
				}
			case Forgets, Restarts:
				e.Claim, e.Until = "", now+believed*tick
			}
			e.Node = max(0, int(number("node"))-1)
		}
		require.True(t, known, "unknown step: %q", line)
		if e.Kind != "" {
			events = append(events, e)
		}
	}
	return events
}

// This model equals lock.pml: it rejects the ways in which each switch of lock.pml breaks the
// promise.
func TestViolationsOfSpinAreRejected(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../spec/RUNS.md")
	require.NoError(t, err)
	rules := map[string]Rule{
		"NO_GUARD": NoQuorum, "SHORT_QUARANTINE": NoQuorum, "MUTE_EXTENDS": NoQuorum, "OTHER_NODES": NoQuorum, "HALF_IS_QUORUM": NoQuorum,
		"CLOCKS_OFF": KeyTaken, "TOO_MANY_FORGET": KeyTaken, "RELEASE_ANYONES": KeyTaken, "COUNT_FROM_GRANT": TooLong,
		"IGNORE_DEADLINE": "", // a history lacks the actions of a client after its deadline
	}
	for _, section := range strings.Split(string(text), "\n## lock: `")[1:] {
		section, _, _ = strings.Cut(section, "\n## ")
		name, body, _ := strings.Cut(section, "`")
		want, known := rules[name]
		require.True(t, known, name)
		delete(rules, name)
		believed := int64(2)
		if strings.Contains(string(text), "`-D"+name+" -DTTL=2`") {
			believed = 1
		}
		var lines []string
		for line := range strings.Lines(body) {
			if step, ok := strings.CutPrefix(line, "    "); ok {
				lines = append(lines, strings.TrimSpace(step))
			}
		}
		require.NotEmpty(t, lines)
		err := Model{Nodes: 3}.Follow(parse(t, lines, believed))
		if want == "" {
			assert.NoError(t, err, name)
			continue
		}
		var r *Rejection
		if assert.ErrorAs(t, err, &r, name) {
			assert.Equal(t, want, r.Rule, "%s: %v", name, r)
		}
	}
	assert.Empty(t, rules, "not in RUNS.md")
}

// The model accepts the runs of lock.pml without a switch.
func TestRandomRunsInSpinAreAccepted(t *testing.T) {
	t.Parallel()
	testenv.NeedProgram(t, "spin")
	steps := 0
	for seed := 1; seed <= 10; seed++ {
		spin := exec.CommandContext(t.Context(), "spin", fmt.Sprint("-n", seed), "-u2000", "-T", "-B", "lock.pml")
		spin.Dir = "../../../spec"
		text, err := spin.CombinedOutput()
		require.NoError(t, err, string(text))
		printed, _, _ := strings.Cut(string(text), "-------------")
		events := parse(t, strings.Split(strings.TrimSpace(printed), "\n"), 2)
		assert.NoError(t, Model{Nodes: 3}.Follow(events), "spin -n%d", seed)
		steps += len(events)
	}
	assert.Greater(t, steps, 1000)
}
