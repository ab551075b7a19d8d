package ballot

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
)

// TestANodeIsWaitedForAFewOfItsUsualRoundTrips, whether it is far or near, and
// whatever single answers took.
func TestANodeIsWaitedForAFewOfItsUsualRoundTrips(t *testing.T) {
	t.Parallel()
	const far, limit = 10 * time.Millisecond, 100 * time.Millisecond
	settle := func(v *Voters, i int, d time.Duration) {
		for range 50 {
			v.Measured(i, d)
		}
	}
	v := NewVoters(make([]protocol.Node, 3), nil, nil)
	assert.Equal(t, limit, v.AnswerLimit(0, limit), "nothing is known")
	settle(v, 0, far)
	assert.InDelta(t, 4*far, v.AnswerLimit(0, limit), float64(far)/10)
	assert.Equal(t, v.AnswerLimit(0, limit), v.AnswerLimit(1, limit), "a node that has never answered counts as the slowest")
	settle(v, 1, time.Microsecond)
	assert.Equal(t, MinAnswerLimit, v.AnswerLimit(1, limit))
	assert.Equal(t, v.AnswerLimit(0, limit), v.AnswerLimitOf(0b11, limit))

	v.Measured(0, time.Hour)
	assert.Less(t, v.AnswerLimit(0, limit), limit, "one pause is not the usual")
	settle(v, 0, far)
	assert.InDelta(t, 4*far, v.AnswerLimit(0, limit), float64(far)/10)
	for range 50 {
		v.Measured(1, far)
	}
	assert.InDelta(t, 4*far, v.AnswerLimit(1, limit), float64(far)/10, "the node has moved far away")
	settle(v, 2, time.Hour)
	assert.Equal(t, limit, v.AnswerLimit(2, limit))
}

// TestRequestsForOneKeyKeepTheirOrder, and hold up no others.
func TestRequestsForOneKeyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	v := NewVoters(nil, nil, nil)
	order := v.Order(&protocol.Request{Key: "a"})
	order.Lock()
	defer order.Unlock()
	var taken []int
	var other sync.WaitGroup
	other.Go(func() { // no goroutine has two of these
		for i := range v.order {
			if !v.order[i].TryLock() {
				taken = append(taken, i)
				continue
			}
			v.order[i].Unlock()
		}
	})
	other.Wait()
	assert.Equal(t, []int{v.stripe("a")}, taken, "other names are not held up")
}
