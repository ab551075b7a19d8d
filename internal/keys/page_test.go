package keys_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/record"
)

// TestPageNamesEveryCompanion: authors of clients in other languages read the page.
func TestPageNamesEveryCompanion(t *testing.T) {
	t.Parallel()
	page := documents.Read(t, "docs/KEYS.md")
	permit := strings.Replace(keys.Slot("KEY", 1), "1", "i", 1)
	for _, key := range []string{
		permit, keys.Counter.Of(permit), keys.Gate.Of("KEY"), keys.Readers.Of("KEY"), keys.Intent.Of("KEY"), keys.Counter.Of("KEY"),
		keys.Queue.Of("KEY"), keys.Call(keys.Queue.Of("KEY"), "TICKET"), keys.Mark.Of("KEY"), "PREFIX" + record.Key,
		record.PrimaryKey, keys.Readers.Of("a{b}c"), "PREFIX" + keys.Probe,
	} {
		assert.Contains(t, page, "`"+key+"`")
	}
}
