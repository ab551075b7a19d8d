package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzPacketsKeepTheirWords: a word can have any bytes and any length.
func FuzzPacketsKeepTheirWords(f *testing.F) {
	f.Add("SET", "key", "", int64(-1))
	f.Add("a\r\nb", "$3\r\n", strings.Repeat("x", 1000), int64(1)<<53)
	f.Fuzz(func(t *testing.T, a, b, c string, n int64) {
		p := Begin(4, a, b).Text(c).Number(n)
		words, others := append(p, p...).Words()
		assert.Equal(t, []string{a, b, c}, words[:3])
		assert.Equal(t, p, Begin(4, words...))
		assert.Equal(t, p, others)
	})
}

func TestPacketIsAnArrayOfBulkStrings(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "*3\r\n$3\r\nGET\r\n$0\r\n\r\n$5\r\n-1234\r\n", string(Begin(3, "GET").Text("").Number(-1234)))
}
