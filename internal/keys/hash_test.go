package keys_test

import (
	"hash/fnv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/keys"
)

// TestHashIsFNV: processes of other versions must compute the same hash.
func TestHashIsFNV(t *testing.T) {
	t.Parallel()
	f := fnv.New64a()
	f.Write([]byte("10.0.0.1:6379tenant/07"))
	assert.Equal(t, f.Sum64(), keys.Hash(keys.Hash(keys.Basis, "10.0.0.1:6379"), "tenant/07"))
}

// TestMixIsSplitMix64: the first numbers of its generator with the seed zero, as published.
func TestMixIsSplitMix64(t *testing.T) {
	t.Parallel()
	const step uint64 = 0x9e3779b97f4a7c15
	state := uint64(0)
	for _, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		assert.Equal(t, want, keys.Mix(state))
		state += step
	}
}
