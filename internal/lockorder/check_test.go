//go:build lockorder

package lockorder

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTheOrderIsChecked: a mutex is taken under those before it, and under no other.
func TestTheOrderIsChecked(t *testing.T) {
	var p Mutex[Queue]
	var k, other Mutex[Sent]
	var n, second Mutex[Doubts]
	p.Lock()
	k.Lock()
	assert.PanicsWithValue(t, "lockorder: lockorder.Sent is taken under lockorder.Sent", other.Lock)
	n.Lock()
	assert.PanicsWithValue(t, "lockorder: lockorder.Doubts is taken under lockorder.Doubts", second.Lock)
	assert.PanicsWithValue(t, "lockorder: lockorder.Hints is taken under lockorder.Queue", new(Mutex[Hints]).Lock)
	n.Unlock()
	p.Unlock() // in any order
	assert.PanicsWithValue(t, "lockorder: lockorder.Queue is taken under lockorder.Sent", p.Lock)
	k.Unlock()
	p.Lock()
	p.Unlock()
	held.Range(func(id, ranks any) bool { assert.Fail(t, "something is held still", "%v: %v", id, ranks); return true })
}
