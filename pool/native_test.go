package pool

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// releases returns the commands with which the rig was asked to release a key, in order.
func (r *rig) releases(key string) (commands []string) {
	for _, line := range r.commands("DELEX", "DELIFEQ", "EVALSHA", "EVAL ") {
		if words := strings.Fields(line); strings.Contains(line, " "+key+" ") {
			commands = append(commands, words[1])
		}
	}
	return commands
}

// held returns the release of a lock that was held until now.
func held(key, value string) protocol.Request {
	r := release(key, value)
	r.Held = true
	return r
}

// TestLockIsReleasedByTheServersOwnCommand: after a refusal the script runs, because it reports
// more.
func TestLockIsReleasedByTheServersOwnCommand(t *testing.T) {
	t.Parallel()
	const holder = "0123456789abcdef0123456789abcdef01234567 since web-3"
	for _, native := range []string{"", "DELEX", "DELIFEQ"} {
		r := newRig(t)
		r.native = native
		n := r.open()
		require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v w")).Outcome)
		assert.Equal(t, protocol.Reply{Outcome: protocol.Granted, Run: "run1/data1"}, do(t, n, held("k", "v w")), native)
		assert.False(t, r.Exists("k"), native)
		assert.Equal(t, []string{cmp.Or(native, "EVALSHA")}, r.releases("k"))
		if native == "" {
			continue
		}
		require.Equal(t, protocol.Granted, do(t, n, acquire("k2", holder)).Outcome)
		reply := do(t, n, held("k2", "v"))
		assert.Equal(t, protocol.Reply{
			Outcome: protocol.Refused, Owner: "since web-3", TTL: testTTL, Run: "run1/data1",
		}, reply)
		assert.Equal(t, reply, do(t, n, release("k2", "v")))
		assert.Equal(t, []string{native, "EVALSHA", "EVALSHA"}, r.releases("k2"), "what is likely to be refused takes one round trip")
		r.HSet("wrong", "field", "value")
		assert.ErrorIs(t, trouble(t, n, held("wrong", "v")), ErrWrongType)
	}
}

// TestEachConnectionChoosesItsDeletion: a server may be replaced, so a retried release is encoded
// again.
func TestEachConnectionChoosesItsDeletion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.native = "DELEX"
	dialled, breaks := cut()
	n := r.open(dialled)
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	r.hangAt("SET")
	submit(t, n, acquire("other", "v"))
	unanswered := submit(t, n, held("k", "v"))
	r.set(func() { r.native = "DELIFEQ" })
	breaks()
	assert.Equal(t, protocol.Unknown, unanswered.next(t).Outcome)
	eventually(t, func() bool { return !r.Exists("k") }, "the release is retried")
	r.goOn()
	assert.Equal(t, []string{"DELIFEQ"}, r.releases("k"))
}

// TestNewestServersHaveTheirOwnDeletion: the test asks the server which deletion command it has,
// and package pool must find the same.
func TestNewestServersHaveTheirOwnDeletion(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	own := ""
	for _, name := range []string{"delifeq", "delex"} {
		if info := s.do("COMMAND", "INFO", name).([]any); info[0] != nil {
			own = name
		}
	}
	const times = 20
	cycle := func(n protocol.Node) {
		for range times {
			require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
			require.Equal(t, protocol.Granted, do(t, n, held("k", "v")).Outcome)
		}
	}
	n := openNode(t, s.url())
	require.Equal(t, protocol.Granted, do(t, n, acquire("connected", "v")).Outcome)
	s.do("CONFIG", "RESETSTAT")
	cycle(n)
	if own == "" {
		assert.Equal(t, times, s.calls("evalsha"))
		return
	}
	assert.Equal(t, times, s.calls(own))
	assert.Zero(t, s.calls("evalsha"))

	// The hint is for changes by others.
	w := wait(t, openNode(t, s.url()), "k")
	w.next()
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	require.Equal(t, protocol.Refused, w.ask().Outcome)
	require.Equal(t, protocol.Granted, do(t, n, held("k", "v")).Outcome)
	w.next()

	var log logBuffer
	forbidden := openNode(t, s.as("lame", "~*", "+@all", "-"+own), log.log())
	require.Equal(t, protocol.Granted, do(t, forbidden, acquire("connected2", "v")).Outcome)
	s.do("CONFIG", "RESETSTAT")
	cycle(forbidden)
	assert.Zero(t, s.calls(own))
	assert.Equal(t, times, s.calls("evalsha"))
	assert.Equal(t, 1, log.count(forbidden, "permit "+strings.ToUpper(own)), "tried once")
}
