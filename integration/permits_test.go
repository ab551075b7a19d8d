package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// A missing node is one that a client does not reach.
type missing struct {
	protocol.Node
	isMissing atomic.Bool
}

func (m *missing) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	if m.isMissing.Load() {
		return errors.New("does not get there")
	}
	return m.Node.Submit(req, slot, to)
}

// countPermit takes a permit as other libraries do, which count on each server: a sorted set has
// up to so many members.
var countPermit = redis.NewScript(1, `
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
return redis.call('ZADD', KEYS[1], 0, ARGV[1])`)

// TestCountingOnEachNodeAdmitsTooMany, and slots do not, where each client misses two other
// servers, as after messages that were lost. Clients who ask one after the other get up to
// floor(5k/3) permits by counting.
func TestCountingOnEachNodeAdmitsTooMany(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		const k, clients, rounds = 4, 12, 12
		pools := make([][]*missing, clients)
		lockers := make([]*redlock.Locker, clients)
		for i := range lockers {
			var all []protocol.Node
			for _, n := range members(t, r.URLs(), nil) {
				m := &missing{Node: n}
				pools[i], all = append(pools[i], m), append(all, m)
			}
			lockers[i] = newLocker(t, all)
			connected(t, lockers[i])
		}
		conns := make([]redis.Conn, nodes)
		for i := range conns {
			c, err := r.connect(i)
			require.NoError(t, err)
			defer c.Close()
			conns[i] = c
		}
		dice := rand.New(rand.NewPCG(1, 2))
		counted, slots := map[int]int{}, map[int]int{} // rounds by holders
		for round := range rounds {
			name, byCount := fmt.Sprint("round-", round), 0
			var locks []*redlock.Lock
			for client := range clients {
				votes := 0
				for nth, i := range dice.Perm(nodes) {
					pools[client][i].isMissing.Store(nth < 2)
					if nth >= 2 {
						n, err := redis.Int(countPermit.Do(conns[i], "counted", client, k))
						require.NoError(t, err)
						votes += n
					}
				}
				if votes > nodes/2 {
					byCount++
				} else {
					for _, c := range conns { // it gives back what it has got
						_, err := c.Do("ZREM", "counted", client)
						require.NoError(t, err)
					}
				}
				lock, err := lockers[client].TryAcquire(context.Background(), name, redlock.Permits(k))
				if err == nil {
					locks = append(locks, lock)
				} else {
					assert.ErrorIs(t, err, redlock.ErrHeld)
				}
			}
			assert.LessOrEqual(t, len(locks), k)
			counted[byCount]++
			slots[len(locks)]++
			for i, c := range conns {
				_, err := c.Do("DEL", "counted")
				require.NoError(t, err, i)
			}
			for _, all := range pools {
				for _, m := range all {
					m.isMissing.Store(false)
				}
			}
			for _, lock := range locks {
				require.NoError(t, lock.Release(context.Background()))
			}
		}
		t.Logf("%d permits, %d clients of which each misses two of five servers: rounds by holders, counting on each server %v, slots %v",
			k, clients, counted, slots)
		more := 0
		for holders, rounds := range counted {
			if holders > k {
				more += rounds
			}
		}
		assert.Positive(t, more, "the faults are too weak to show a difference")
	})
}
