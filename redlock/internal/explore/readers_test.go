package explore

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// TestReadersStarveNoWriter: readers of two processes arrive continually, each before the last
// reader has left. A writer waits in one of these processes or in another. It gets the lock soon
// after the readers before it have left.
func TestReadersStarveNoWriter(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		waited := waitBehindReaders(t, seed)
		assert.Less(t, waited, 2*time.Second, "seed %d: readers hold for about 0.4 s, in its process and then in others", seed)
	}
}

// waitBehindReaders returns the wait of the writer, at most five seconds.
func waitBehindReaders(t *testing.T, seed uint64) time.Duration {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	d := &dice{Rand: r, hangs: make([]time.Duration, 3)}
	w := newWorld(3, 3, d, func(limit time.Duration) time.Duration { return time.Duration(r.Int64N(max(1, int64(limit)))) })
	d.now, w.reuses = &w.now, true
	plain := core.Terms{TTL: 10 * time.Second, Timeout: 30 * time.Millisecond, Renew: true, Patience: time.Second}
	reads := plain
	reads.Shared = true
	u := &run{world: w, dice: d, end: time.Minute, terms: []*core.Terms{&reads}}
	for _, p := range w.processes[:2] {
		for range 4 {
			u.arrive(p)
		}
	}
	u.until(func() bool { return u.now > 100*time.Millisecond })
	p := w.processes[seed%2*2]
	writer := &caller{Caller: &core.Caller{Terms: &plain}, process: p, acts: never, leaves: never}
	p.callers = append(p.callers, writer)
	u.world.arrive(writer)
	came := u.now
	u.until(func() bool { return writer.granted || u.now > came+5*time.Second })
	require.Empty(t, u.problem, "seed %d", seed)
	return u.now - came
}

// until performs steps without faults, until isSo returns true.
func (u *run) until(isSo func() bool) {
	for u.problem == "" && !isSo() {
		s := u.next()
		if s.at == never {
			return
		}
		u.now = max(u.now, s.at)
		u.perform(&s)
		u.judge()
	}
}

// A travels is a network with a function that determines delays and losses.
type travels func(node int) (there time.Duration, lost bool)

func (f travels) travel(_, node int) (there, back time.Duration, lost, unanswered bool) {
	there, lost = f(node)
	return there, time.Millisecond, lost, false
}

// TestNodeForgetsAReaderAdmittedLate: the node has refused the first reader of the process.
// The request of another reader to join reaches the node late, and the first request to release
// does not reach it.
func TestNodeForgetsAReaderAdmittedLate(t *testing.T) {
	t.Parallel()
	late, isLost := time.Millisecond, false
	w := newWorld(3, 1, travels(func(node int) (time.Duration, bool) {
		if node == 0 {
			return late, isLost
		}
		return time.Millisecond, false
	}), func(limit time.Duration) time.Duration { return limit })
	u := &run{world: w, dice: &dice{Rand: rand.New(rand.NewPCG(1, 1)), now: &w.now}}
	u.sure = true
	w.nodes[0].Run(w.now, 0, &protocol.Request{Op: protocol.OpAcquire, Key: name, Value: "another's", TTL: 10 * time.Millisecond})
	terms := core.Terms{TTL: 10 * time.Second, Timeout: 30 * time.Millisecond, Patience: time.Second, Shared: true}
	p := w.processes[0]
	var readers []*caller
	for range 2 {
		c := &caller{Caller: &core.Caller{Terms: &terms}, process: p, acts: time.Hour, leaves: never}
		readers, p.callers = append(readers, c), append(p.callers, c)
		w.arrive(c)
		u.until(func() bool { return c.granted })
		late, u.now = 40*time.Millisecond, u.now+20*time.Millisecond // the turn of the process has ended
	}
	isLost = true
	for _, c := range readers {
		require.True(t, c.granted)
		c.acts, c.asks = never, &core.Caller{Ref: c}
		p.key.Release(c.hold, c.asks, p.local(u.now))
		w.carry(p)
	}
	u.until(func() bool { return false })
	assert.Empty(t, u.problem)
	for i, node := range w.nodes {
		assert.Empty(t, u.leftAt(i, node), "node %d", i)
	}
}
