package protocol

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// An unknown operation or outcome, from a newer version or from another Node, must not crash the
// process that logs it.
func TestOperationsAndOutcomesOutOfRangeHaveAName(t *testing.T) {
	t.Parallel()
	for op := range len(opNames) {
		assert.NotEmpty(t, Op(op).String(), op)
	}
	for o := range len(outcomeNames) {
		assert.NotEmpty(t, Outcome(o).String(), o)
	}
	assert.Equal(t, "acquire", OpAcquire.String())
	assert.Equal(t, "Op(0)", Op(0).String())
	assert.Equal(t, "Op(42)", Op(42).String())
	assert.Equal(t, "Op(255)", Op(255).String())
	assert.Equal(t, "unknown", Unknown.String())
	assert.Equal(t, "Outcome(0)", Outcome(0).String())
	assert.Equal(t, "Outcome(42)", Outcome(42).String())
}
