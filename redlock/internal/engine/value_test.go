package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestValuesAreUnique: otherwise a late release could delete the lock of another holder.
func TestValuesAreUnique(t *testing.T) {
	t.Parallel()
	assert.NotEqual(t, newValue(), newValue())
	assert.Len(t, newValue(), 40)
}
