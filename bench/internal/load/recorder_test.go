package load

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func TestMessagesGroupByTheirWords(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "read #.#.#.#:#: pass*** at # ms", group("read 127.0.0.1:6379: pass*** at 17 ms"))
	assert.Equal(t, "no quorum: node #: gone; node #: gone", group("no quorum: node 1: gone; node 2: gone; node 3: gone"))
	long := group(strings.Repeat("é", longestError))
	assert.Less(t, len(long), longestError+4)
	assert.True(t, utf8.ValidString(long))
}

func TestKindsOfMessagesAreBounded(t *testing.T) {
	t.Parallel()
	all := map[string]int64{}
	for i := range distinctErrors + 50 {
		count(all, fmt.Sprint("message ", i), 2)
	}
	assert.Len(t, all, distinctErrors+1)
	assert.EqualValues(t, 100, all[otherErrors])
}
