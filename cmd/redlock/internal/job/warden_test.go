package job

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestWardenConsidersAllItsOrders: each case lists the orders in the warden's pipe, the time before
// it read them, and the resulting action.
func TestWardenConsidersAllItsOrders(t *testing.T) {
	t.Parallel()
	type look struct {
		now time.Duration
		order
		does action
	}
	for name, looks := range map[string][]look{
		"it dies at the end of its time":        {{0, order{setEnd, 10}, toWait}, {9, order{silence, 0}, toWait}, {10, order{silence, 0}, toKill}},
		"a time that is over when it is set":    {{0, order{setEnd, -5}, toWait}, {0, order{silence, 0}, toKill}},
		"each renewal moves the end":            {{0, order{setEnd, 10}, toWait}, {9, order{setEnd, 20}, toWait}, {19, order{silence, 0}, toWait}, {20, order{silence, 0}, toKill}},
		"a renewal that was in the pipe counts": {{0, order{setEnd, 10}, toWait}, {15, order{setEnd, 20}, toWait}, {15, order{silence, 0}, toWait}},
		"the last one too late":                 {{0, order{setEnd, 10}, toWait}, {25, order{setEnd, 20}, toWait}, {25, order{silence, 0}, toKill}},
		"a loss makes the end earlier":          {{0, order{setEnd, 90}, toWait}, {5, order{setEnd, 10}, toWait}, {10, order{silence, 0}, toKill}},
		"other orders do not move it":           {{0, order{setEnd, 10}, toWait}, {12, order{setCommand, 7}, toAnswer}, {12, order{silence, 0}, toKill}},
		"the first process dies":                {{0, order{setEnd, 90}, toWait}, {5, order{widowed, 0}, toKill}},
		"a warden that has left still watches":  {{0, order{setEnd, 10}, toWait}, {12, order{leaveGroup, 0}, toLeave}, {12, order{silence, 0}, toKill}},
	} {
		w := watch{until: math.MaxInt64}
		for i, l := range looks {
			assert.Equal(t, l.does, w.obey(l.order, l.now), "%s: look %d", name, i)
		}
	}
}

// TestWardenWaitsAtMostUntilTheDeadline: it reads the clock from time to time, because the machine
// may sleep during the wait.
func TestWardenWaitsAtMostUntilTheDeadline(t *testing.T) {
	t.Parallel()
	w := watch{until: time.Hour}
	assert.Less(t, w.patience(0), time.Second)
	assert.Equal(t, time.Millisecond, w.patience(time.Hour-time.Millisecond))
	assert.Zero(t, w.patience(2*time.Hour))
}
