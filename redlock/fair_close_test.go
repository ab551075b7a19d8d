package redlock_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock"
)

// A lastWord is a node that is asked to keep a queue when its Locker is being closed.
type lastWord struct {
	redlock.Node
	asked *atomic.Int32
	close func()
}

// Submit implements redlock.Node.
func (n lastWord) Submit(req *redlock.Request, slot int, to redlock.Receiver) error {
	if req.Op != redlock.OpQueue || req.Ticket.Leave {
		return n.Node.Submit(req, slot, to)
	}
	n.asked.Add(1)
	n.close()
	return redlock.ErrClosed
}

// TestAFairWaiterAsksNobodyAfterClose: that one node fails then is no reason to turn
// to the next.
func TestAFairWaiterAsksNobodyAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		given, _ := nodes("a", "b", "c", "d", "e")
		var l *redlock.Locker
		var asked atomic.Int32
		closed := sync.OnceFunc(func() { assert.NoError(t, l.Close()) })
		for i := range given {
			given[i] = lastWord{given[i], &asked, closed}
		}
		l, err := redlock.New(given, redlock.Clock(clock.NewFake(1)), redlock.MemoryGuard(false), redlock.Fair())
		require.NoError(t, err)
		_, err = l.Acquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrClosed)
		assert.EqualValues(t, 1, asked.Load())
	})
}
