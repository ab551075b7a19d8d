package wire

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A reply that none of our scripts gives accepts no token, and extends or releases nothing.
func TestAReplyThatMakesNoSenseGrantsNothing(t *testing.T) {
	t.Parallel()
	for _, reply := range []int64{0, -1, math.MinInt64, 1<<53 - 1, 1 << 53, math.MaxInt64} {
		_, err := decodeFenced(reply)
		assert.ErrorIs(t, err, ErrUnexpected, fmt.Sprint(reply))
	}
	for _, reply := range []int64{0, 2, -1, math.MinInt64} {
		_, err := decodeOwned(reply)
		assert.ErrorIs(t, err, ErrUnexpected, fmt.Sprint(reply))
	}
	got, err := decodeFenced(int64(1<<53 - 2))
	assert.NoError(t, err)
	assert.Equal(t, protocol.Reply{Outcome: protocol.Granted, Floor: 1<<53 - 2}, got)
	got, err = decodeFenced(int64(1))
	assert.NoError(t, err)
	assert.Equal(t, protocol.Reply{Outcome: protocol.Granted}, got)
}

// A number that is no slot, or more slots than were asked for, are no slots at all.
func TestStrangeSlotsAreNotFree(t *testing.T) {
	t.Parallel()
	var many []any
	for i := range protocol.MostFree + 1 {
		many = append(many, int64(i))
	}
	for _, answer := range []any{[]any{int64(-1)}, []any{int64(math.MaxInt64)}, []any{int64(1), "2"}, many, int64(-2)} {
		_, err := decodeSlots(answer)
		assert.ErrorIs(t, err, ErrUnexpected, fmt.Sprint(answer))
	}
	got, err := decodeSlots(many[:protocol.MostFree])
	assert.NoError(t, err)
	assert.Equal(t, protocol.Reply{Outcome: protocol.Granted, Free: []int{0, 1, 2, 3, 4, 5, 6, 7}}, got)
	got, err = decodeSlots(int64(7))
	assert.NoError(t, err)
	assert.Equal(t, protocol.Reply{Outcome: protocol.Refused, TTL: 7 * time.Millisecond}, got)
}

// An owner is told beside the remaining TTL of a refusal, and is no longer than the script has it.
func TestAnOwnerIsToldWithARefusal(t *testing.T) {
	t.Parallel()
	got, err := decodeReleased([]any{int64(5), []byte("web-3")})
	assert.NoError(t, err)
	assert.Equal(t, protocol.Reply{Outcome: protocol.Refused, TTL: 5 * time.Millisecond, Owner: "web-3"}, got)
	for _, v := range [][]any{
		{int64(5), bytes.Repeat([]byte("a"), 256)}, {int64(5), "web-3"}, {[]byte("a"), []byte("a")}, {int64(5), []byte("a"), []byte("a")},
	} {
		_, err := decodeReleased(v)
		assert.ErrorIs(t, err, ErrUnexpected)
	}
	_, err = decodeOwned([]any{int64(5), []byte("web-3")})
	assert.ErrorIs(t, err, ErrUnexpected, "no other script tells it")
}

func TestStrangeRepliesAreUnknown(t *testing.T) {
	t.Parallel()
	for i, decode := range []func(any) (protocol.Reply, error){
		decodeSet, decodeOwned, decodeReleased, decodeInspect, decodeWatch, decodeQueue, decodeRecord,
		decodeSlots,
	} {
		for _, v := range []any{"PONG", []any{}, []any{"a", "b"}, []byte("x"), 1.5} {
			_, err := decode(v)
			assert.ErrorIs(t, err, ErrUnexpected, fmt.Sprint(i, v))
		}
	}
}
