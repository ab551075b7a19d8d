package membership

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/redlock/internal/trust"
)

// A keeper is the goroutine in which a Locker completes its version of the map, and keeps that on
// the nodes. It also ends arrivals.
type keeper struct {
	ctx    context.Context // ends with the Locker
	cancel context.CancelFunc
	all    sync.WaitGroup // the goroutines

	mu      lockorder.Mutex[lockorder.Keeper]
	stopped bool
}

// add counts a goroutine, unless the Locker is closed.
func (k *keeper) add() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stopped {
		k.all.Add(1)
	}
	return !k.stopped
}

// keepEvery is how often a version is written anew: nodes forget marks one after the other, and
// those that remember must be a majority.
const keepEvery = time.Hour

// completeEvery is how often a Locker tries to complete its newest version.
const completeEvery = 5 * time.Second

// changeWait is how long a version that is retired everywhere is waited for before the next is
// complete, so that the fencing tokens of a name rise when it has come to another group. A token
// is less than five TokenSlacks ahead of the clocks of the servers that accepted it, and as much again is for
// groups whose clocks differ.
const changeWait = 10 * trust.TokenSlack

// Keep starts the keeper.
func (m *Map) Keep() {
	ctx, cancel := context.WithCancel(context.Background())
	m.keeper.ctx, m.keeper.cancel = ctx, cancel
	m.keeper.all.Go(func() {
		p := m.config.Parkers.Get()
		defer m.config.Parkers.Put(p)
		every := keepEvery
		if m.base < m.newest {
			every = completeEvery
		}
		for {
			p.WakeAfter(every/2 + m.config.Jitter(every/2))
			p.Sleep(ctx, m.config.Closed)
			select {
			case <-m.config.Closed:
				return
			case <-ctx.Done():
				return
			default:
			}
			if !m.proof.done.Load() {
				continue
			}
			if every == completeEvery && m.complete(ctx, p) == nil {
				every = keepEvery
			}
			m.refresh(ctx)
		}
	})
}

func (k *keeper) stop() {
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	k.cancel()
	k.all.Wait()
}

// Close ends the keeper. The nil Map has none.
func (m *Map) Close() {
	if m != nil {
		m.keeper.stop()
	}
}
