package load

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func TestPasswordsAreTakenOut(t *testing.T) {
	t.Parallel()
	s := newScrubber([]string{"redis://user:p%40ss1@localhost:1", "redis://:other@localhost:2", "localhost:3", "://"})
	for text, want := range map[string]string{
		"dial redis://user:p%40ss1@localhost:1: no":       "dial redis://localhost:1: no",
		"dial redis://foreign:secr@t@localhost:1/0: no":   "dial redis://localhost:1/0: no",
		"AUTH p@ss1 failed, other failed":                 "AUTH *** failed, *** failed",
		"unix:///tmp/a@b and rediss://localhost are fine": "unix:///tmp/a@b and rediss://localhost are fine",
	} {
		assert.Equal(t, want, s.clean(text))
	}
}

func TestMessagesGroupByTheirWords(t *testing.T) {
	t.Parallel()
	s := newScrubber([]string{"redis://:pass12@localhost"})
	assert.Equal(t, "read #.#.#.#:#: pass*** at # ms", s.group("read 127.0.0.1:6379: pass*** at 17 ms"))
	assert.Equal(t, "AUTH ***", s.group("AUTH pass12"), "before its numbers are replaced")
	assert.Equal(t, "no quorum: node #: gone; node #: gone", s.group("no quorum: node 1: gone; node 2: gone; node 3: gone"))
	long := s.group(strings.Repeat("é", longestError))
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
