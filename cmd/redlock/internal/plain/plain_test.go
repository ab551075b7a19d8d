package plain

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestHeadStaysOnTheScreen: this holds in a window of any size.
func TestHeadStaysOnTheScreen(t *testing.T) {
	assert.Equal(t, "a\n\n", Frame("a\n", Screen{}), "elsewhere texts follow each other")
	assert.Equal(t, clearScreen+"LOCK S…\na     …\n... 2 …", Frame("LOCK STATE\na     héld\nb     held\nc     held\n", Screen{7, 3}))
	assert.Equal(t, clearScreen+"1\n2\n3", Frame("1\n2\n3\n", Screen{7, 3}))
}

func TestCommandsToCopyAreOneLine(t *testing.T) {
	for name, want := range map[string]string{
		"nightly":  "redlock status nightly --json",
		"a b  $x":  "redlock status 'a b  $x' --json",
		"it's":     `redlock status 'it'\''s' --json`,
		"-x":       "redlock status --json -- -x",
		"a\xff\n'": `redlock status $'a\xff\x0a\x27' --json`,
		"":         "redlock status '' --json",
	} {
		assert.Equal(t, want, Advice("status", name, "--json"))
	}
}
