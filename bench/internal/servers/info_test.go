package servers

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/fleet"
)

func TestVersionsAreNamedOnceEach(t *testing.T) {
	t.Parallel()
	for want, products := range map[string][]product{
		"":                           {{"redis", ""}},
		"redis 7.0.15":               {{"redis", ""}, {"redis", "7.0.15"}},
		"redis 7.0.15, 7.2.1":        {{"redis", "7.0.15"}, {"redis", "7.2.1"}},
		"redis 7.0.15, valkey 8.1.0": {{"redis", "7.0.15"}, {"valkey", "8.1.0"}},
	} {
		assert.Equal(t, want, list(products))
	}
}

func TestValkeyIsNotTakenForTheRedisItClaimsToBe(t *testing.T) {
	t.Parallel()
	assert.Equal(t, product{"redis", "7.0.15"}, readProduct("# Server\r\nredis_version:7.0.15\r\nos:x\r\n"))
	assert.Equal(t, product{"valkey", "8.1.0"}, readProduct("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n"))
	assert.Equal(t, product{"redis", ""}, readProduct(""))
}

func TestTheVersionOfRealServers(t *testing.T) {
	t.Parallel()
	_, w := start(t, fleet.Process, 2)
	assert.Regexp(t, `^(redis|valkey) \d+\.\d+\.\d+$`, w.Version(t.Context()))
}
