package hash_test

import (
	"hash/fnv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/hash"
)

// TestTextIsFNV: processes of other versions must choose the same.
func TestTextIsFNV(t *testing.T) {
	t.Parallel()
	f := fnv.New64a()
	f.Write([]byte("10.0.0.1:6379tenant/07"))
	assert.Equal(t, f.Sum64(), hash.Text(hash.Text(hash.Basis, "10.0.0.1:6379"), "tenant/07"))
}

// TestMixIsSplitMix64: the first numbers of its generator with the seed zero, as published.
func TestMixIsSplitMix64(t *testing.T) {
	t.Parallel()
	const step uint64 = 0x9e3779b97f4a7c15
	state := uint64(0)
	for _, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		assert.Equal(t, want, hash.Mix(state))
		state += step
	}
}
