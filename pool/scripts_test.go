package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

func inQueue(id string, life time.Duration) protocol.Request {
	return protocol.Request{Op: protocol.OpQueue, Key: "q", Ticket: &protocol.Ticket{ID: id, Life: life}}
}

func TestAQueueGoesWhenNothingIsAsked(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	left := func(key string) time.Duration {
		ms, err := redis.Int64(s.do("PTTL", key), nil)
		require.NoError(t, err)
		return time.Duration(ms) * time.Millisecond
	}
	do(t, n, inQueue("a", time.Hour))
	do(t, n, inQueue("b", time.Second))
	for _, key := range []string{"q", "q:seen"} {
		assert.Greater(t, left(key), 2*time.Hour, "a short life does not cut short a long one")
		assert.LessOrEqual(t, left(key), 3*time.Hour)
	}
	for _, id := range []string{"a", "b"} {
		leave := inQueue(id, time.Hour)
		leave.Ticket.Leave = true
		do(t, n, leave)
	}
	assert.EqualValues(t, 0, s.do("EXISTS", "q", "q:seen"))
}

func TestTicketsOfTheSameMomentAreInTheOrderOfTheirNames(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	s.do("ZADD", "q", 1000, "b", 1000, "a")
	for _, id := range []string{"a", "b"} {
		s.do("HSET", "q:seen", id, time.Now().Add(time.Hour).UnixMilli())
	}
	assert.Equal(t, protocol.Refused, do(t, n, inQueue("b", time.Hour)).Outcome)
	assert.Equal(t, protocol.Granted, do(t, n, inQueue("a", time.Hour)).Outcome)
}

func TestTicketsOfTheSameMillisecondAreInTheOrderOfTheirComing(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	ids := strings.Split("jihgfedcba", "")
	for i, id := range ids {
		reply := do(t, n, inQueue(id, time.Hour))
		assert.Equal(t, i == 0, reply.Outcome == protocol.Granted)
		assert.Equal(t, i, reply.Others, "all who came before")
	}
	late := inQueue("k", time.Hour)
	late.Ticket.Waited = 1500 * time.Microsecond
	assert.Contains(t, string(encodeQueue(nil, &late)), "\r\n1.5\r\n", "milliseconds")
}

// Half of the queue may be of the right type.
func TestAQueueOfAnotherTypeLeavesNothingThatStays(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"q", "q:seen"} {
		r := newRig(t)
		require.NoError(t, r.Set(key, "string"))
		n := r.open()
		reply := do(t, n, inQueue("a", time.Second))
		assert.Equal(t, protocol.Failed, reply.Outcome)
		assert.ErrorIs(t, reply.Err, ErrWrongType)
		r.FastForward(time.Minute)
		assert.Equal(t, []string{key}, r.Keys())
	}
}

// TestWhoWaitsInOrderLearnsThatThereIsNone: the node logs it once, in whatever words a server says it.
func TestWhoWaitsInOrderLearnsThatThereIsNone(t *testing.T) {
	t.Parallel()
	for _, says := range []string{
		"ERR Error running script (call to f_1): @user_script:30: @user_script: 30: The user executing the script can't run this command or subcommand",
		"ERR ACL failure in script: User locks has no permissions to run the 'zadd' command script: 948f, on @user_script:30.",
		"ERR unknown command 'EVALSHA', with args beginning with: 'f00' '2' 'q' ",
	} {
		r := newRig(t)
		var log logBuffer
		n := r.open(log.log())
		r.fail("EVALSHA", says)
		for range 3 {
			assert.Error(t, trouble(t, n, inQueue("a", time.Second)))
		}
		assert.Equal(t, 1, log.count(n, "not served in order"), says)
		r.fail("EVALSHA", "LOADING Redis is loading the dataset in memory")
		assert.Error(t, trouble(t, n, inQueue("a", time.Second)))
		assert.Equal(t, 1, log.count(n, "not served in order"), "that will pass")
	}
}

// TestScriptsHaveTheWordsOfThisPackage: a Lua file cannot name a constant.
func TestScriptsHaveTheWordsOfThisPackage(t *testing.T) {
	t.Parallel()
	for name, word := range map[string]string{
		"readers": protocol.ReadersValue, "refuse_release": protocol.ReadersValue, "intend": protocol.ReadersValue,
		"read_counter": highest, "accept_token": highest, "record": primaryKey,
	} {
		assert.Contains(t, luaSource(name), "'"+word+"'", name)
	}
	assert.Contains(t, luaSource("record"), "data = '"+record.OwnData+"'")
	assert.Contains(t, luaSource("read_counter"), "error_reply('"+counterError+" ")
}

// TestServersGetScriptsWithoutTheirComments, and whole.
func TestServersGetScriptsWithoutTheirComments(t *testing.T) {
	t.Parallel()
	for _, s := range scripts() {
		assert.NotContains(t, "\n"+s.source, "\n--")
	}
	assert.Equal(t, 2, strings.Count(luaSource("release_fenced"), "redis.call('GET', KEYS[1])")+strings.Count(luaSource("release_fenced"), "pcall('ZSCORE'"))
	assert.Contains(t, luaSource("release_fenced"), luaSource("accept_token")+"end\nrefuse()\n"+luaSource("refuse_release"))
}
