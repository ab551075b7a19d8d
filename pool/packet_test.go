package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
)

// FuzzPacketsKeepTheirWords: any bytes, of any length.
func FuzzPacketsKeepTheirWords(f *testing.F) {
	f.Add("SET", "key", "", int64(-1))
	f.Add("a\r\nb", "$3\r\n", strings.Repeat("x", 1000), int64(1)<<53)
	f.Fuzz(func(t *testing.T, a, b, c string, n int64) {
		p := begin(4, a, b).text(c).number(n)
		words, others := append(p, p...).words()
		assert.Equal(t, []string{a, b, c}, words[:3])
		assert.Equal(t, p, begin(4, words...))
		assert.Equal(t, p, others)
	})
}

func TestAPacketIsAnArrayOfBulkStrings(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "*3\r\n$3\r\nGET\r\n$0\r\n\r\n$5\r\n-1234\r\n", string(begin(3, "GET").text("").number(-1234)))
}

// TestRequestsAreAppended: what stands before them in the writer's memory stays.
func TestRequestsAreAppended(t *testing.T) {
	t.Parallel()
	slots := &protocol.Slots{Stem: "s", Tail: "k", N: 3}
	for _, r := range []protocol.Request{
		held("k", "v"), acquire("k", "v"), {Op: protocol.OpExtend, Key: "k", Value: "v", TTL: time.Second},
		{Op: protocol.OpSlots, Key: "k", Slots: slots}, {Op: protocol.OpSlots, Key: "k", Slots: slots, Watch: true},
	} {
		alone := packet(nil).appendRequest(&r, form{})
		assert.Equal(t, "before"+string(alone), string(packet("before").appendRequest(&r, form{})), "%v", r.Op)
	}
}
