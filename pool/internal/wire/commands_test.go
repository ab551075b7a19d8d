package wire

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
)

// TestInvalidAnswersGrantNothing: an answer that none of our commands has accepts no token,
// extends and releases nothing, and names no slots.
func TestInvalidAnswersGrantNothing(t *testing.T) {
	t.Parallel()
	granted := protocol.Reply{Outcome: protocol.Granted}
	refused := protocol.Reply{Outcome: protocol.Refused, TTL: 5 * time.Millisecond}
	owned, slots := refused, granted
	owned.Owner, slots.Free = "web-3", []int{0, 1, 2, 3, 4, 5, 6, 7}
	var many []any
	for i := range protocol.MostFree + 1 {
		many = append(many, int64(i))
	}
	owner := []any{int64(5), []byte("web-3")}
	for name, row := range map[string]struct {
		decode func(any) (protocol.Reply, error)
		answer any
		reply  protocol.Reply
		bad    []any
	}{
		"set":     {decodeSet, "OK", granted, nil},
		"inspect": {decodeInspect, []any{[]byte("v"), int64(5)}, protocol.Reply{Outcome: protocol.Granted, Value: "v", TTL: 5 * time.Millisecond}, nil},
		"watch":   {decodeWatch, int64(5), refused, nil},
		"queue":   {decodeQueue, int64(3), protocol.Reply{Outcome: protocol.Granted, Others: 3}, nil},
		"queue, first": {decodeQueue, []any{int64(3), int64(5)}, protocol.Reply{Outcome: protocol.Granted, Others: 3, Next: 5 * time.Microsecond}, []any{
			int64(-1), []any{int64(0)}, []any{int64(0), int64(5)}, []any{int64(3), int64(0)}, []any{int64(3), "5"},
		}},
		"record": {decodeRecord, []any{[]byte("r"), []byte("-"), int64(0), int64(0)},
			protocol.Reply{Outcome: protocol.Granted, Epoch: &protocol.Epoch{Record: "r"}}, nil},
		"owned": {decodeOwned, int64(1), granted, []any{int64(0), int64(2), int64(-1), int64(math.MinInt64), owner}},
		"token": {decodeFenced, int64(1<<53 - 2), protocol.Reply{Outcome: protocol.Granted, Floor: 1<<53 - 2}, []any{
			int64(0), int64(-1), int64(math.MinInt64), int64(1<<53 - 1), int64(1 << 53), int64(math.MaxInt64),
		}},
		"token accepted": {decodeFenced, int64(1), granted, nil},
		"released": {decodeReleased, owner, owned, []any{
			[]any{int64(5), bytes.Repeat([]byte("a"), 256)}, []any{int64(5), "web-3"}, []any{[]byte("a"), []byte("a")}, append(owner, owner[1]),
		}},
		"slots": {decodeSlots, many[:protocol.MostFree], slots, []any{
			[]any{int64(-1)}, []any{int64(math.MaxInt64)}, []any{int64(1), "2"}, many, int64(-2),
		}},
		"no slots": {decodeSlots, int64(5), refused, nil},
	} {
		got, err := row.decode(row.answer)
		assert.NoError(t, err, name)
		assert.Equal(t, row.reply, got, name)
		for _, v := range append(row.bad, "PONG", []any{}, []any{"a", "b"}, []byte("x"), 1.5) {
			_, err := row.decode(v)
			assert.ErrorIs(t, err, ErrUnexpected, "%s: %v", name, v)
		}
	}
}
