package pool

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	need "github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/internal/protocol"
)

// newNativeRig is a rig that knows one of the commands that compare and delete.
func newNativeRig(t *testing.T, command string) *rig {
	r := newRig(t)
	r.native = command
	return r
}

// releases returns how the rig was asked to release a key: the commands in their order.
func (r *rig) releases(key string) (commands []string) {
	for _, line := range r.commands("DELEX", "DELIFEQ", "EVALSHA", "EVAL ") {
		if words := strings.Fields(line); strings.Contains(line, " "+key+" ") {
			commands = append(commands, words[1])
		}
	}
	return commands
}

// held is the release of a lock that was held until now.
func held(key, value string) protocol.Request {
	r := release(key, value)
	r.Held = true
	return r
}

func fencedRelease(key, value string, token int64) protocol.Request {
	r := held(key, value)
	r.Op, r.Counter, r.Token, r.Slack = protocol.OpReleaseFenced, "c", token, time.Minute
	return r
}

func TestALockIsReleasedByTheServersOwnCommand(t *testing.T) {
	t.Parallel()
	for native, want := range map[string]string{"": "EVALSHA", "DELEX": "DELEX", "DELIFEQ": "DELIFEQ"} {
		r := newNativeRig(t, native)
		n := r.open()
		for _, ask := range []protocol.Request{held("k", "v w"), fencedRelease("k", "v w", time.Now().UnixMicro())} {
			before := len(r.releases("k"))
			require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v w")).Outcome)
			reply := do(t, n, ask)
			assert.Equal(t, protocol.Reply{Outcome: protocol.Granted, Run: "run1/data1"}, reply, native)
			assert.False(t, r.Exists("k"), native)
			assert.Equal(t, []string{want}, r.releases("k")[before:], native)
		}
	}
}

// TestARefusedDeletionIsLeftToTheScript, which tells what the deletion does not.
func TestARefusedDeletionIsLeftToTheScript(t *testing.T) {
	t.Parallel()
	const holder = "0123456789abcdef0123456789abcdef01234567 since web-3"
	for _, native := range []string{"DELEX", "DELIFEQ"} {
		r := newNativeRig(t, native)
		n := r.open()
		require.Equal(t, protocol.Granted, do(t, n, acquire("k", holder)).Outcome)
		reply := do(t, n, held("k", "v"))
		assert.Equal(t, protocol.Refused, reply.Outcome)
		assert.Equal(t, "since web-3", reply.Owner)
		assert.Equal(t, 10*time.Second, reply.TTL)
		assert.Equal(t, []string{native, "EVALSHA"}, r.releases("k"))

		likely := release("k", "v") // to be refused
		assert.Equal(t, reply, do(t, n, likely))
		assert.Equal(t, []string{native, "EVALSHA", "EVALSHA"}, r.releases("k"), "one round trip")

		r.HSet("wrong", "field", "value")
		assert.ErrorIs(t, trouble(t, n, held("wrong", "v")), ErrWrongType)
		assert.True(t, r.Exists("k"))
	}
}

// TestARefusedDeletionKeepsALateAcquisitionOut: with a token, the release's script raises the
// counter.
func TestARefusedDeletionKeepsALateAcquisitionOut(t *testing.T) {
	t.Parallel()
	r := newNativeRig(t, "DELEX")
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("connected", "v")).Outcome)
	token := time.Now().UnixMicro()
	assert.Equal(t, protocol.Refused, do(t, n, fencedRelease("k", "v", token)).Outcome)
	assert.Equal(t, []string{"DELEX", "EVALSHA"}, r.releases("k"))
	late := fencedRelease("k", "v", token)
	late.Op, late.MayHold = protocol.OpAcquireFenced, false
	assert.Equal(t, protocol.Refused, do(t, n, late).Outcome)
	assert.False(t, r.Exists("k"))
}

// TestADeletionIsAskedForOnEachConnection, because a server may be replaced: a release that is retried
// is encoded for the next.
func TestADeletionIsAskedForOnEachConnection(t *testing.T) {
	t.Parallel()
	r := newNativeRig(t, "DELEX")
	dialled, breaks := cut()
	n := r.open(dialled)
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	r.hangAt("SET")
	submit(t, n, acquire("other", "v"))
	unanswered := submit(t, n, held("k", "v"))
	r.mu.Lock()
	r.native = "DELIFEQ"
	r.mu.Unlock()
	breaks()
	assert.Equal(t, protocol.Unknown, unanswered.next(t).Outcome)
	eventually(t, func() bool { return !r.Exists("k") }, "the release is retried")
	r.goOn()
	assert.Equal(t, []string{"DELIFEQ"}, r.releases("k"))
}

// TestAnExtensionThatIsOvertakenMakesNoKey: after SCRIPT FLUSH an extension is sent again, behind the
// deletion that was submitted after it.
func TestAnExtensionThatIsOvertakenMakesNoKey(t *testing.T) {
	t.Parallel()
	r := newNativeRig(t, "DELEX")
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	r.hangAt("EVALSHA")
	extended, released := submit(t, n, extend("k", "v")), submit(t, n, held("k", "v"))
	eventually(t, r.hangs, "sent")
	r.fail("EVALSHA", "NOSCRIPT No matching script. Please use EVAL.")
	r.goOn()
	assert.Equal(t, protocol.Granted, released.next(t).Outcome)
	assert.Equal(t, protocol.Refused, extended.next(t).Outcome)
	assert.False(t, r.Exists("k"))
}

// TestTheNewestServersReleaseByThemselves: whether a server has such a command is asked of the
// server, not of package pool.
func TestTheNewestServersReleaseByThemselves(t *testing.T) {
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

	// The hint is for others' changes.
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

// BenchmarkServerCPU measures what a lock and its release, and a release that is refused, cost a
// server: REDLOCK_TEST_SERVER=/path/to/server go test ./pool -run - -bench ServerCPU
func BenchmarkServerCPU(b *testing.B) {
	need.Redis(b)
	f, err := fleet.Start(b.Context(), fleet.Process, fleet.Options{Nodes: 1, Volatile: true})
	require.NoError(b, err)
	b.Cleanup(func() { f.Close() })
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(b, err)
	b.Cleanup(func() { c.Close() })
	used := func() (seconds float64) {
		info, err := redis.String(c.Do("INFO", "cpu"))
		require.NoError(b, err)
		for _, field := range regexp.MustCompile(`used_cpu_(sys|user):([0-9.]+)`).FindAllStringSubmatch(info, -1) {
			part, err := strconv.ParseFloat(field[2], 64)
			require.NoError(b, err)
			seconds += part
		}
		return seconds
	}
	for _, refused := range []bool{false, true} {
		for name, opts := range map[string][]Option{"script": {NetDial((&gate{}).dial)}, "own": nil} {
			b.Run(fmt.Sprintf("%s/refused=%t", name, refused), func(b *testing.B) {
				nodes, err := OpenWith(f.URLs(), opts...)
				require.NoError(b, err)
				defer nodes[0].Close()
				value := strings.Repeat("0123456789", 4)
				taken, released := acquire("k", value), held("k", value)
				taken.TTL, released.TTL = time.Minute, time.Minute
				taken.Timeout, released.Timeout = time.Minute, time.Minute
				const pipelined = 16
				to := make(replies, 2*pipelined)
				before := used()
				for b.Loop() {
					asked := 0
					for range pipelined {
						if !refused {
							require.NoError(b, nodes[0].Submit(&taken, 0, to))
							asked++
						}
						require.NoError(b, nodes[0].Submit(&released, 0, to))
						asked++
					}
					for range asked {
						<-to
					}
				}
				b.ReportMetric((used()-before)*1e6/pipelined/float64(b.N), "server-us/lock")
			})
		}
	}
}
