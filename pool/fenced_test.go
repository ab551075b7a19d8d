package pool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// judged is an acquisition whose token the asker compares with the clock.
func judged(key string, token int64) protocol.Request {
	return protocol.Request{
		Op: protocol.OpAcquireFenced, Key: key, Value: "v", Counter: "c:" + key, Token: token,
		Slack: 2 * time.Second, Epoch: "record", Judged: true,
	}
}

// record gives the server a record of its memory.
func (r *rig) record(left time.Duration) {
	require.NoError(r.t, r.Set("record", "text"))
	r.SetTTL("record", left)
}

// plainly returns the commands so far that make up acquisitions, without their connections.
func (r *rig) plainly() (commands []string) {
	for _, line := range r.commands("SET", "ZADD", "PEXPIRE", "EVALSHA", "EVAL ") {
		words := strings.Fields(line)[1:]
		commands = append(commands, strings.Join(words[:min(2, len(words))], " "))
	}
	return commands
}

// isPlain reports whether the node asks for a lock with a token by plain commands. It must get it.
func (r *rig) isPlain(n protocol.Node, key string) bool {
	r.t.Helper()
	before := len(r.plainly())
	reply := do(r.t, n, judged(key, time.Now().UnixMicro()))
	require.Equal(r.t, protocol.Granted, reply.Outcome, reply.Err)
	require.Zero(r.t, reply.Floor)
	require.True(r.t, r.Del(key))
	asked := r.plainly()[before:]
	if strings.HasPrefix(asked[0], "EVALSHA ") {
		return false
	}
	require.Equal(r.t, plainCommandsOf(key), asked)
	return true
}

func plainCommandsOf(key string) []string {
	return []string{"SET " + key, "PEXPIRE c:" + key, "ZADD c:" + key, "PEXPIRE c:" + key}
}

// newPlainRig returns a rig, and a node that is connected to it.
func newPlainRig(t *testing.T, opts ...Option) (*rig, protocol.Node) {
	r := newRig(t)
	r.record(10 * time.Hour)
	n := openGated(t, r.url(), opts...)
	require.Equal(t, protocol.Granted, do(t, n, protocol.Request{Op: protocol.OpInspect, Key: "connected"}).Outcome)
	return r, n
}

func TestAJudgedTokenIsAcceptedByPlainCommands(t *testing.T) {
	t.Parallel()
	r, n := newPlainRig(t)
	before, token := len(r.plainly()), time.Now().UnixMicro()
	reply := do(t, n, judged("k", token))
	assert.Equal(t, protocol.Reply{Outcome: protocol.Granted, Run: "run1/data1", Life: 10 * time.Hour}, reply)
	assert.Equal(t, plainCommandsOf("k"), r.plainly()[before:])
	score, err := r.ZScore("c:k", "highest")
	require.NoError(t, err)
	assert.Equal(t, float64(token), score)
	assert.Equal(t, 10*time.Second, r.TTL("k"))
	assert.Equal(t, protocol.Refused, do(t, n, judged("k", token+1)).Outcome)
	require.True(t, r.Del("k"))
	assert.True(t, r.isPlain(n, "k"))
}

// TestPlainCommandsGiveACounterItsLife, and never a shorter one.
func TestPlainCommandsGiveACounterItsLife(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("7.0", "conditions of PEXPIRE")
	n := openNode(t, s.url())
	do(t, n, acquire("first", "v")) // before it is connected a request is a script, which gives each counter its own life
	const life = 24*time.Hour + 12*time.Second
	for name, c := range map[string]struct{ before, after time.Duration }{
		"new":                {0, life},
		"made without":       {protocol.NoTTL, life},
		"old":                {time.Minute, life},
		"ahead of the clock": {72 * time.Hour, 72 * time.Hour},
	} {
		if c.before != 0 {
			s.do("ZADD", "c:"+name, 5, "highest")
		}
		if c.before > 0 {
			s.do("PEXPIRE", "c:"+name, c.before.Milliseconds())
		}
		reply := do(t, n, judged(name, time.Now().UnixMicro()))
		require.Equal(t, protocol.Granted, reply.Outcome, reply.Err)
		require.Zero(t, reply.Floor)
		left, _ := s.do("PTTL", "c:"+name).(int64)
		assert.InDelta(t, c.after.Milliseconds(), left, 60_000, name)
	}
}

// TestATokenThatIsNotAcceptedIsAnsweredByTheScript, which tells the counter.
func TestATokenThatIsNotAcceptedIsAnsweredByTheScript(t *testing.T) {
	t.Parallel()
	r, n := newPlainRig(t)
	token := time.Now().Add(time.Minute).UnixMicro()
	require.Equal(t, protocol.Granted, do(t, n, judged("k", token)).Outcome)
	require.True(t, r.Del("k"))
	reply := do(t, n, judged("k", token-5))
	assert.Equal(t, protocol.Reply{Outcome: protocol.Granted, Floor: token, Run: "run1/data1", Life: 10 * time.Hour}, reply)
	assert.True(t, r.Exists("k"))

	r.fail("EVALSHA", "NOSCRIPT No matching script. Please use EVAL.")
	require.True(t, r.Del("k"))
	assert.Equal(t, reply, do(t, n, judged("k", token-4)), "sent again with its source")
	assert.Equal(t, 1, r.connections())
}

// TestAServerWithoutThePlainCommandsGetsTheScript, as does one that turns out to have none.
func TestAServerWithoutThePlainCommandsGetsTheScript(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.record(time.Hour)
	r.fail("EXPIRETIME", "ERR unknown command 'EXPIRETIME', with args beginning with: ")
	n := r.open()
	for range 4 {
		assert.False(t, r.isPlain(n, "k"))
	}
	r, n = newPlainRig(t)
	r.fail("ZADD", "NOPERM this user has no permissions to run the 'zadd' command")
	reply := do(t, n, judged("k", time.Now().UnixMicro()))
	assert.Equal(t, protocol.Unknown, reply.Outcome, "the key was taken, and the script cannot set the counter")
	assert.ErrorIs(t, reply.Err, ErrPermission)
	assert.True(t, r.Del("k"))
	r.fail("ZADD", "")
	assert.False(t, r.isPlain(n, "k"))
	assert.Equal(t, 1, r.connections())
}

// TestEachOfABatchHasItsOwnAnswer, though some requests have four.
func TestEachOfABatchHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	r, n := newPlainRig(t)
	ahead := time.Now().Add(time.Minute).UnixMicro()
	require.Equal(t, protocol.Granted, do(t, n, judged("low", ahead)).Outcome)
	require.True(t, r.Del("low"))
	require.Equal(t, protocol.Granted, do(t, n, acquire("held", "v")).Outcome)
	var want []string
	var requests []protocol.Request
	ask := func(r protocol.Request, answer string) {
		r.TTL = 10 * time.Second
		requests, want = append(requests, r), append(want, answer)
	}
	token := time.Now().UnixMicro()
	for i := range 3 {
		ask(judged(fmt.Sprint("free", i), token), "granted 0")
		ask(judged("held", token), "refused 0")
		ask(extend("held", "v"), "granted 0")
		ask(acquire(fmt.Sprint("plain", i), "v"), "granted 0")
		ask(judged("free0", token+int64(i)), "refused 0")
	}
	ask(judged("low", token), fmt.Sprint("granted ", ahead))
	ask(release("held", "other"), "refused 0")
	var got []string
	for _, to := range submitTogether(t, n, requests...) {
		reply := to.next(t)
		got = append(got, fmt.Sprint(reply.Outcome, " ", reply.Floor))
	}
	assert.Equal(t, want, got)
}
