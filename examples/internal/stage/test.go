package stage

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// OnServers runs a test on five servers in this process, and on five processes of redis-server.
func OnServers(t *testing.T, test func(t *testing.T, urls []string)) {
	t.Parallel()
	for kind, opts := range map[fleet.Kind]fleet.Options{
		fleet.Embedded: {},
		fleet.Process:  {Volatile: true}, // these servers are never restarted
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, testenv.Servers(t, kind, opts).URLs())
		})
	}
}

// Test runs a story, which must succeed and print all texts in says.
func Test(t *testing.T, story Story, says ...string) {
	OnServers(t, func(t *testing.T, urls []string) {
		var out strings.Builder
		require.NoError(t, story(t.Context(), &out, urls))
		for _, text := range says {
			assert.Contains(t, out.String(), text)
		}
	})
}
