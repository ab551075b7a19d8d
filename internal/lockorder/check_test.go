//go:build lockorder

package lockorder

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTheOrderIsChecked: a mutex is taken under those before it, and under no other.
func TestTheOrderIsChecked(t *testing.T) {
	var q Mutex[Queue]
	var s, other Mutex[Session]
	var b, round Mutex[Ballot]
	q.Lock()
	s.Lock()
	assert.PanicsWithValue(t, "lockorder: lockorder.Session is taken under lockorder.Session", other.Lock)
	b.Lock()
	assert.PanicsWithValue(t, "lockorder: lockorder.Ballot is taken under lockorder.Ballot", round.Lock)
	assert.PanicsWithValue(t, "lockorder: lockorder.Watches is taken under lockorder.Queue", new(Mutex[Watches]).Lock)
	b.Unlock()
	q.Unlock() // in any order
	assert.PanicsWithValue(t, "lockorder: lockorder.Queue is taken under lockorder.Session", q.Lock)
	s.Unlock()
	q.Lock()
	q.Unlock()
	held.Range(func(id, ranks any) bool { assert.Fail(t, "something is held still", "%v: %v", id, ranks); return true })
}
