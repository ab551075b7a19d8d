package wire

import (
	"testing"

	"github.com/redquorum/redquorum/internal/pure"
)

// TestNoConnection: bytes go in and out. Of redigo there are only the types of answers.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	pure.Check(t, pure.Rules{
		Imports: []string{
			"bufio", "bytes", "crypto/fips140", "crypto/sha1", "embed", "encoding/hex", "errors", "fmt", "io", "math", "regexp", "slices", "strconv", "strings",
			"sync", "sync/atomic", "time", "github.com/gomodule/redigo/redis",
			"./internal/keys", "./internal/protocol", "./internal/record",
		},
		Of:    map[string][]string{"redis": {"Error"}, "time": {"Duration", "Hour", "Millisecond", "Microsecond"}, "sync": {"Pool"}},
		Calls: []string{"Answered", "encode", "decode", "encode"},
	})
}
