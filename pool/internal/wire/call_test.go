package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

func request(op protocol.Op, key, value string) *protocol.Request {
	return &protocol.Request{
		Op: op, Key: key, Value: value, TTL: time.Minute, MayHold: op.Releases(), Counter: "c", Token: 5,
		Shared: &protocol.Shared{}, Ticket: &protocol.Ticket{}, Slots: &protocol.Slots{N: 3, Stem: "s", Tail: "k"}, Admit: &protocol.Admission{},
	}
}

func held(key, value string) *protocol.Request {
	r := request(protocol.OpRelease, key, value)
	r.Held = true
	return r
}

func callOf(r *protocol.Request, f Form) *Call { return &Call{Request: r, Form: f} }

// text returns a packet as a server reads it.
func text(k *Call) string {
	var lines []string
	for p := Packet(nil).Append(k); len(p) > 0; {
		var words []string
		words, p = p.Words()
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

// TestEveryRequestIsAppended: earlier bytes in the writer's memory stay.
func TestEveryRequestIsAppended(t *testing.T) {
	t.Parallel()
	for op := protocol.OpAcquire; op <= protocol.OpKind; op++ {
		for _, watch := range []bool{false, true} {
			r := request(op, "k", "v")
			r.Watch = watch
			alone := Packet(nil).Append(callOf(r, Form{}))
			assert.Equal(t, "before"+string(alone), string(Packet("before").Append(callOf(r, Form{}))), "%v", op)
			words, others := alone.Words()
			assert.Empty(t, others, "%v", op)
			assert.Contains(t, words, "k", "%v", op)
		}
	}
	late := request(protocol.OpQueue, "q", "")
	late.Ticket.Waited = 1500 * time.Microsecond
	assert.Contains(t, text(callOf(late, Form{})), " 1.5 ", "milliseconds")
}

// TestReleaseIsRetried: the exceptions are permanent errors, because an ACL or a kind of server
// that forbids a release now also forbids it later. TestServerErrorsAreClassified has the texts.
func TestReleaseIsRetried(t *testing.T) {
	t.Parallel()
	for message, retried := range map[string]bool{
		"NOPERM User locks has no permissions to run the 'evalsha' command": false,
		"MOVED 16287 127.0.0.1:7002":                                        false,
		"ERR unknown command 'EVALSHA'":                                     false,
		"WRONGTYPE Operation against a key holding the wrong kind of value": false,
		"REDLOCKFENCE the highest fencing token makes no sense":             false,
		"CLUSTERDOWN Hash slot not served":                                  true,
		"READONLY You can't write against a read only replica.":             true,
		"OOM command not allowed when used memory > 'maxmemory'.":           true,
	} {
		a := callOf(request(protocol.OpRelease, "k", "v"), Form{}).Answer(nil, redis.Error(message))
		assert.Equal(t, protocol.Failed, a.Reply.Outcome, message)
		assert.Equal(t, retried, a.Pending, message)
		assert.False(t, a.Requeue, message)
	}
	a := callOf(request(protocol.OpRelease, "k", "v"), Form{}).Answer("what", "")
	assert.Equal(t, protocol.Unknown, a.Reply.Outcome)
	assert.True(t, a.Pending, "an answer without sense tells nothing")
}

// TestLostScriptIsSentInFull: the request is repeated only once. A request that makes a key is not
// sent again, because its release may be in flight.
func TestLostScriptIsSentInFull(t *testing.T) {
	t.Parallel()
	const lost = redis.Error("NOSCRIPT No matching script. Please use EVAL.")
	for op := protocol.OpAcquire; op <= protocol.OpKind; op++ {
		k := callOf(request(op, "k", "v"), Form{})
		a := k.Answer(nil, lost)
		switch cmd := commands[op]; {
		case cmd.makesKey:
			assert.Equal(t, Answer{Reply: protocol.Reply{Outcome: protocol.Failed, Err: errScriptsLost}, Fatal: errScriptsLost}, a, "%v", op)
		case cmd.script == nil:
			assert.False(t, a.Requeue, "%v", op)
			assert.Equal(t, protocol.Failed, a.Reply.Outcome)
		default:
			require.True(t, a.Requeue && k.Form.Requeued, "%v", op)
			rest := strings.TrimPrefix(text(callOf(k.Request, Form{})), "EVALSHA "+cmd.script.digest)
			assert.Equal(t, "EVAL "+cmd.script.source+rest, text(k))
			once := k.Answer(nil, lost)
			assert.False(t, once.Requeue, "only once")
			assert.Equal(t, protocol.Failed, once.Reply.Outcome)
		}
	}
	batch := []Call{*callOf(request(protocol.OpAcquireFenced, "k", "v"), Form{}), *callOf(request(protocol.OpInspect, "k", "v"), Form{})}
	WithSources(batch)
	assert.True(t, strings.HasPrefix(text(&batch[0]), "EVAL "))
	assert.True(t, strings.HasPrefix(text(&batch[1]), "EVALSHA "), "it can be sent again")
}

// TestUnclearDeletionIsRepeatedByTheScript: any answer that is not final leads to the script. A
// deletion that would fail again is not repeated.
func TestUnclearDeletionIsRepeatedByTheScript(t *testing.T) {
	t.Parallel()
	d := deletions[0]
	for _, row := range []struct {
		answer  any
		failure redis.Error
		lacks   *Deletion
		doubt   bool
	}{
		{answer: int64(0)},
		{answer: nil},
		{failure: "NOPERM User locks has no permissions to run the 'delex' command", lacks: d, doubt: true},
		{failure: "ERR unknown command 'DELEX', with args beginning with: 'k' ", lacks: d},
		{failure: "ERR Key should be of string type if conditions are specified"},
		{failure: "NOREPLICAS Not enough good replicas to write."},
	} {
		k := callOf(held("k", "v"), Form{deletion: d})
		a := k.Answer(row.answer, row.failure)
		require.True(t, a.Requeue && k.Form.Requeued, row)
		assert.True(t, strings.HasPrefix(text(k), "EVALSHA "+releaseScript.digest+" 1 k v"))
		assert.Equal(t, row.lacks, a.Lacks.Deletion, row)
		assert.Equal(t, row.doubt, strings.Contains(a.Doubt, "permit DELEX"), row)
	}
	a := callOf(held("k", "v"), Form{deletion: d}).Answer(int64(1), "")
	assert.Equal(t, Answer{Reply: protocol.Reply{Outcome: protocol.Granted}}, a)
}

// TestProbesShowTheCommandsOfAServer: a server shows by its refusals which commands it lacks.
func TestProbesShowTheCommandsOfAServer(t *testing.T) {
	t.Parallel()
	for native, want := range map[string]Abilities{
		"": {}, "DELEX": {Deletion: deletions[0]}, "DELIFEQ": {Deletion: deletions[1]},
	} {
		var a Abilities
		for _, probe := range Probes {
			says := "ERR unknown command '" + probe + "', with args beginning with: "
			if probe == native {
				says = fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(probe))
			}
			a.Refused(probe, redis.Error(says))
		}
		assert.Equal(t, want, a)
		assert.Equal(t, Abilities{}, a.Without(a))
		assert.Equal(t, a, a.Without(Abilities{}))
	}
}
