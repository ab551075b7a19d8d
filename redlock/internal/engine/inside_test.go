package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// A willing node grants everything.
type willing struct{}

func (willing) String() string { return "willing" }
func (willing) Close() error   { return nil }
func (willing) Submit(_ *protocol.Request, slot int, to protocol.Receiver) error {
	go to.Receive(slot, protocol.Reply{Outcome: protocol.Granted})
	return nil
}

// TestALockThatIsOverWhenItsCallerWakesIsStale: a process can be paused between the vote, or a handover, and the
// moment at which the caller runs.
func TestALockThatIsOverWhenItsCallerWakesIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Nodes: []protocol.Node{willing{}}, Clock: clock.NewFake(1)})
		w := e.begin("x", core.Caller{Terms: &core.Terms{TTL: time.Second, Timeout: time.Second}})
		synctest.Wait()
		time.Sleep(2 * time.Second)
		lock, f, err := w.grant(t.Context())
		require.NoError(t, err)
		assert.Nil(t, lock.Hold)
		require.NotNil(t, f)
		assert.Equal(t, core.Stale, f.Kind)
		require.NoError(t, e.Close(t.Context()))
	})
}

// TestNoTwoValuesAreAlike: a late release would hit the lock of another.
func TestNoTwoValuesAreAlike(t *testing.T) {
	t.Parallel()
	assert.NotEqual(t, newValue(), newValue())
	assert.Len(t, newValue(), 40)
}
