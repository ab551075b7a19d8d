//go:build lockorder

package lockorder

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTheOrderIsChecked: a mutex is taken under those before it, and under no other.
func TestTheOrderIsChecked(t *testing.T) {
	var p Mutex[Node]
	var k, other Mutex[Conn]
	var n, second Mutex[Doubts]
	p.Lock()
	k.Lock()
	assert.PanicsWithValue(t, "lockorder: lockorder.Conn is taken under lockorder.Conn", other.Lock)
	n.Lock()
	assert.PanicsWithValue(t, "lockorder: lockorder.Doubts is taken under lockorder.Doubts", second.Lock)
	assert.PanicsWithValue(t, "lockorder: lockorder.Hints is taken under lockorder.Node", new(Mutex[Hints]).Lock)
	n.Unlock()
	p.Unlock() // in any order
	assert.PanicsWithValue(t, "lockorder: lockorder.Node is taken under lockorder.Conn", p.Lock)
	k.Unlock()
	p.Lock()
	p.Unlock()
	held.Range(func(id, ranks any) bool { assert.Fail(t, "something is held still", "%v: %v", id, ranks); return true })
}
