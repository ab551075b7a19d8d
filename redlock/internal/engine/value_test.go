package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestNoTwoValuesAreAlike: a late release would hit the lock of another.
func TestNoTwoValuesAreAlike(t *testing.T) {
	t.Parallel()
	assert.NotEqual(t, newValue(), newValue())
	assert.Len(t, newValue(), 40)
}
