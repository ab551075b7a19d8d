package wire

import (
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

func judged(key string) *protocol.Request {
	r := request(protocol.OpAcquireFenced, key, "v")
	r.Judged = true
	return r
}

// answerPlain returns what the answers to the four commands mean.
func answerPlain(k *Call, answers ...any) Answer {
	var p Plain
	for i, said := range answers {
		failure, isFailure := said.(redis.Error)
		if isFailure {
			said = nil
		}
		if a, last := p.Answer(k, said, failure); last {
			return a
		} else if i == len(answers)-1 {
			panic("there is no answer")
		}
	}
	panic("unreachable")
}

// TestAnAcquisitionByPlainCommands: what SET says decides, and the token counts where it and the life of
// its counter are accepted.
func TestAnAcquisitionByPlainCommands(t *testing.T) {
	t.Parallel()
	const none, one = int64(0), int64(1)
	granted, refused := protocol.Reply{Outcome: protocol.Granted}, protocol.Reply{Outcome: protocol.Refused}
	unknown := redis.Error("ERR unknown command 'ZADD', with args beginning with: ")
	for _, row := range []struct {
		answers []any
		reply   protocol.Reply
		raise   bool
		lacks   bool
	}{
		{answers: []any{"OK", none, one, one}, reply: granted},
		{answers: []any{"OK", one, one, none}, reply: granted},
		{answers: []any{nil, none, one, one}, reply: refused},
		{answers: []any{nil, none, none, none}, reply: refused},
		{answers: []any{"OK", none, none, none}, raise: true},
		{answers: []any{"OK", none, unknown, none}, raise: true, lacks: true},
		{answers: []any{"OK", redis.Error("ERR Unsupported option GT"), one, one}, raise: true, lacks: true},
		{answers: []any{"OK", none, one, redis.Error("NOPERM this user has no permissions")}, raise: true, lacks: true},
		{answers: []any{"OK", none, redis.Error("OOM command not allowed"), none}, raise: true},
		{answers: []any{nil, none, redis.Error("ERR value is not a valid float"), none}, reply: refused, lacks: true},
	} {
		k := callOf(judged("k"), Form{plain: true})
		k.Expires = 1
		a := answerPlain(k, row.answers...)
		assert.Equal(t, row.reply, a.Reply, row)
		assert.Equal(t, row.lacks, a.Lacks.Plain, row)
		require.Equal(t, row.raise, a.Again, row)
		if row.raise {
			assert.Equal(t, protocol.OpRaise, k.op())
			assert.Zero(t, k.Expires, "it is sent though the time is over, because the lock is taken")
			assert.Equal(t, protocol.Unknown, k.Unsent())
		}
	}
	a := answerPlain(callOf(judged("k"), Form{plain: true}), redis.Error("OOM command not allowed"), none, one, one)
	assert.Equal(t, protocol.Unknown, a.Reply.Outcome)
	assert.ErrorContains(t, a.Reply.Err, "OOM")
	a = answerPlain(callOf(judged("k"), Form{plain: true}), int64(7), none, one, one)
	assert.Equal(t, protocol.Unknown, a.Reply.Outcome)
	assert.ErrorIs(t, a.Reply.Err, ErrUnexpected)
}

// TestEachCommandIsAnswered: the four go together, and the others of a batch have one answer.
func TestEachCommandIsAnswered(t *testing.T) {
	t.Parallel()
	k := callOf(judged("k"), Form{plain: true})
	assert.Equal(t, "SET k v NX PX 60000\nPEXPIRE c 86400000 GT\nZADD c GT CH 5 highest\nPEXPIRE c 86400000 NX", text(k))
	assert.Equal(t, 4, k.Answers())
	assert.Equal(t, 1, callOf(judged("k"), Form{}).Answers())
	assert.Equal(t, Form{plain: true}, Abilities{Plain: true}.Form(judged("k")))
	assert.Equal(t, Form{}, Abilities{}.Form(judged("k")))
	blind := judged("k")
	blind.Judged = false
	assert.Equal(t, Form{}, Abilities{Plain: true}.Form(blind), "the server compares its clock")
}
