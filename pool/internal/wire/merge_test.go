package wire

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// batchOf returns a batch of the given requests: "extend a", "release a" of a lock that was held,
// and so on. A trailing * watches the key, and a trailing + sets another TTL.
func batchOf(asked ...string) (batch []Call) {
	ops := map[string]protocol.Op{
		"set": protocol.OpAcquire, "extend": protocol.OpExtend, "look": protocol.OpLook, "release": protocol.OpRelease,
		"undo": protocol.OpRelease, "fenced": protocol.OpReleaseFenced, "slots": protocol.OpSlots, "inspect": protocol.OpInspect,
	}
	for i, text := range asked {
		op, key, _ := strings.Cut(text, " ")
		r := request(ops[op], strings.TrimRight(key, "*+"), fmt.Sprint("v", i))
		r.Held = op == "release"
		r.Watch = strings.HasSuffix(key, "*")
		r.TTL += time.Duration(strings.Count(key, "+")) * time.Hour
		batch = append(batch, *callOf(r, Form{}))
	}
	return batch
}

// merged returns the places in the batch of the requests in each call: "0 2" is a merged call.
func merged(m *Merger, batch []Call) (places []string) {
	at := map[*protocol.Request]int{}
	for i := range batch {
		at[batch[i].Request] = i
	}
	for _, k := range m.Merge(batch) {
		if k.Own == nil {
			places = append(places, fmt.Sprint(at[k.Request]))
			continue
		}
		var each []string
		for _, one := range k.Each() {
			each = append(each, fmt.Sprint(at[one.Request]))
		}
		places = append(places, strings.Join(each, " "))
	}
	return places
}

// TestRequestsOfOneKindAreMerged: requests of one kind, at any distance among requests for other keys. No request
// overtakes another request for its key, or a request for several keys.
func TestRequestsOfOneKindAreMerged(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{
		"extend a,extend b":                    "0 1",
		"extend a":                             "0",
		"extend a,look b,extend c,look d":      "0 2,1 3",
		"release a,set b,release c":            "0 2,1",
		"set a,release a,set b,release b":      "0,1,2,3",
		"release a,set b,release b,release c":  "0 3,1,2",
		"release a,set a,release a,release b":  "0 3,1,2",
		"extend a,release a,extend a,extend b": "0 3,1,2",
		"extend a,extend a":                    "0,1",
		"release a,slots x,release b":          "0,1,2",
		"extend a,extend b+,extend c*":         "0,1,2",
		"look a,look b*,look c":                "0 2,1",
		"release a,release b+,release c++":     "0 1 2", // with any TTL
		"undo a,undo b,fenced c,release d":     "0,1,2,3",
		"inspect a,inspect b,set c,set d":      "0,1,2,3",
	} {
		assert.Equal(t, want, strings.Join(merged(new(Merger), batchOf(strings.Split(asked, ",")...)), ","), asked)
	}
	batch := batchOf("extend a", "extend b")
	batch[1].Form.Requeued = true
	assert.Equal(t, []string{"0", "1"}, merged(new(Merger), batch), "it is asked alone")
	var stopped Merger
	stopped.Stop()
	assert.Equal(t, []string{"0", "1"}, merged(&stopped, batchOf("extend a", "extend b")))
}

// TestMergedCallIsOneScript: one script has all of its keys.
func TestMergedCallIsOneScript(t *testing.T) {
	t.Parallel()
	var m Merger
	batch := m.Merge(batchOf("extend a", "release x", "extend b", "release y"))
	require.Len(t, batch, 2)
	assert.Equal(t, "EVALSHA "+extendEachScript.digest+" 2 a b 60000 v0 v2", text(&batch[0]))
	assert.Equal(t, "EVALSHA "+releaseEachScript.digest+" 2 x y 0 v1 v3", text(&batch[1]))
	assert.Equal(t, []string{"a", "b"}, batch[0].MergedExtensions())
	assert.Nil(t, batch[1].MergedExtensions())
	assert.Equal(t, "EXISTS a b", text(&Call{Own: &Own{packet: m.ReadEach([]string{"a", "b"})}}))
}

// TestMergingKeepsTheOrder: in any batch, each request occurs once, the requests for a key keep
// their order, and no call is too long.
func TestMergingKeepsTheOrder(t *testing.T) {
	t.Parallel()
	var m Merger
	kinds := []string{"set %d", "extend %d", "extend %d", "extend %d*", "extend %d+", "look %d", "release %d", "release %d", "undo %d", "fenced %d", "slots %d"}
	for seed := range uint64(500) {
		lot := rand.New(rand.NewPCG(seed, 0))
		keys, n := 1+lot.IntN(400), lot.IntN(600)
		var asked []string
		for range n {
			kind := kinds[lot.IntN(len(kinds)-lot.IntN(2))]
			asked = append(asked, fmt.Sprintf(kind, lot.IntN(keys)))
		}
		batch := batchOf(asked...)
		at, last := map[*protocol.Request]int{}, map[string]int{}
		for i := range batch {
			at[batch[i].Request] = i
		}
		seen, barrier := 0, -1
		for _, k := range m.Merge(batch) {
			each := k.Each()
			if k.Own == nil {
				each = []Call{k}
			}
			require.LessOrEqual(t, len(each), maxMerged, seed)
			for _, one := range each {
				place, key := at[one.Request], one.Request.Key
				before, asked := last[key]
				require.True(t, !asked || before < place, "seed %d: %d behind %d", seed, place, before)
				require.Greater(t, place, barrier, "seed %d: it passes one about several keys", seed)
				last[key] = place
				seen++
				if one.Request.Op == protocol.OpSlots {
					barrier = place
				}
			}
		}
		require.Equal(t, n, seen, seed)
		m.Sent()
	}
}

// TestThousandsAreMergedInHundreds: a script delays all other clients. If there are more kinds than
// maxGroups, they are merged in parts.
func TestThousandsAreMergedInHundreds(t *testing.T) {
	t.Parallel()
	var asked []string
	for i := range 1000 {
		asked = append(asked, fmt.Sprint("extend k", i))
	}
	assert.Len(t, merged(new(Merger), batchOf(asked...)), 1000/maxMerged)
	asked = nil
	for i := range 3 * (maxGroups + 1) {
		asked = append(asked, fmt.Sprint("extend k", i, strings.Repeat("+", i/3)))
	}
	assert.Len(t, merged(new(Merger), batchOf(asked...)), maxGroups+1)
}

// TestInvalidMergedAnswersGrantNothing: each request is repeated alone.
func TestInvalidMergedAnswersGrantNothing(t *testing.T) {
	t.Parallel()
	each := batchOf("release a", "release b")
	for _, answer := range []any{
		nil, int64(0), int64(2), int64(-3), "OK", []any{}, []any{int64(-3)}, []any{int64(-3), int64(-3), int64(-3)},
		[]any{nil, nil}, []any{int64(-5), int64(-5)}, []any{int64(mergedAlone), nil}, []any{"1", "1"}, []any{[]any{}, []any{}},
		redis.Error("ERR unknown command"),
	} {
		for i := range each {
			a := AnswerOf(each, i, answer, "")
			require.True(t, a.Requeue && each[i].Form.Requeued, answer)
			assert.Equal(t, fmt.Sprintf("EVALSHA %s 1 %s v%d", releaseScript.digest, each[i].Request.Key, i), text(&each[i]))
		}
	}
	answer := []any{int64(mergedGranted), int64(1)}
	assert.Equal(t, Answer{Reply: protocol.Reply{Outcome: protocol.Granted}}, AnswerOf(each, 0, answer, ""))
	assert.Equal(t, Answer{Reply: protocol.Reply{Outcome: protocol.Refused, TTL: time.Millisecond}}, AnswerOf(each, 1, answer, ""),
		"the last millisecond of another's key")
	for failure, stops := range map[redis.Error]bool{
		"": false, "NOSCRIPT none": false, "NOPERM no": true, "ERR unknown command": true, "OOM for now": false,
	} {
		assert.Equal(t, stops, StopsMerging(failure), failure)
	}
}
