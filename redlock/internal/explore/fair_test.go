package explore

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock/internal/core"
)

// A crowd has processes with Fair callers, each of which requests the key again and again.
type crowd struct {
	name               string
	processes, callers int
	plain              int // processes with one caller that is not Fair
	hold, think        time.Duration
	fenced             bool
	leaves             bool // a caller leaves in one of fifty steps
	silent             bool // the home node of the queue stops answering
	locks              int  // minimum per second
}

// TestFairCallersNeverOvertake: a caller is served before an earlier caller of another process only
// if the travel times of messages to one node differ by as much as the arrivals.
func TestFairCallersNeverOvertake(t *testing.T) {
	t.Parallel()
	const hold, think = 100 * time.Microsecond, 20 * time.Millisecond
	for _, c := range []crowd{
		{name: "1x16", processes: 1, callers: 16, locks: 11_000},
		{name: "1x16 and a plain one", processes: 1, callers: 16, plain: 1, locks: 5_500},
		{name: "1x16 fenced", processes: 1, callers: 16, fenced: true, locks: 8_500},
		{name: "2x8", processes: 2, callers: 8, locks: 4_500},
		{name: "2x8 and two plain ones", processes: 2, callers: 8, plain: 2, hold: hold, locks: 2_300},
		{name: "2x24 that come at random", processes: 2, callers: 24, hold: hold, think: think, locks: 1_000},
		{name: "2x24 that leave", processes: 2, callers: 24, hold: hold, think: think, leaves: true, locks: 900},
		{name: "4x1", processes: 4, callers: 1, locks: 650},
		{name: "4x4", processes: 4, callers: 4, locks: 2_400},
		{name: "4x4 fenced", processes: 4, callers: 4, fenced: true, locks: 2_100},
		{name: "4x12 that come at random", processes: 4, callers: 12, hold: hold, think: think, locks: 700},
		{name: "4x12 that leave", processes: 4, callers: 12, hold: hold, think: think, leaves: true, locks: 700},
		{name: "3x6 while a node is silent", processes: 3, callers: 6, hold: hold, think: think, silent: true},
		{name: "4x4 while a node is silent", processes: 4, callers: 4, silent: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			locks, seeds := 0, 3
			for seed := range seeds {
				locks += c.run(t, uint64(seed))
			}
			locks = locks * int(time.Second/crowdLasts) / seeds
			t.Logf("%d locks a second", locks)
			assert.GreaterOrEqual(t, locks, c.locks)
		})
	}
}

const crowdLasts = time.Second / 2

// run returns the number of acquired locks.
func (c crowd) run(t *testing.T, seed uint64) int {
	const (
		trip   = 200 * time.Microsecond
		slack  = trip/4 + 2*time.Microsecond
		falls  = 100 * time.Millisecond // time at which the node stops answering
		passes = 200 * time.Millisecond // time until all processes have noticed that
	)
	network := &steady{Rand: rand.New(rand.NewPCG(seed, 2)), trip: trip, silent: -1}
	r := newRelay(5, c.processes+c.plain, 0, false, c.hold+20*time.Microsecond, network)
	r.think = c.think
	begin, end := r.now, r.now+crowdLasts
	plain := core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true, Fenced: c.fenced}
	fair := plain
	fair.Fair = true
	for i, p := range r.processes {
		if i >= c.processes {
			r.join(p, &core.Caller{Terms: &plain})
			continue
		}
		for range c.callers {
			r.join(p, &core.Caller{Terms: &fair})
		}
	}
	for r.now < end {
		if c.silent && r.now > begin+falls {
			network.silent = r.processes[0].key.Home()
		}
		r.step()
		require.Empty(t, r.problem)
		if c.leaves && network.IntN(50) == 0 {
			r.leaves(r.processes[network.IntN(c.processes)])
		}
		served, first := r.order()
		if isNoticed := !c.silent || r.now < begin+falls || r.now > begin+falls+passes; isNoticed && served > 0 {
			require.LessOrEqual(t, served-first, slack, "at %v", r.now)
		}
		if c.plain > 0 {
			require.LessOrEqual(t, r.longestWait(), 60*time.Millisecond)
		}
	}
	return r.locks
}

// order returns the arrival of the Fair caller that has just acquired the key, or zero, and the
// arrival of the first waiting one.
func (r *relay) order() (served, first time.Duration) {
	first = never
	for _, p := range r.processes {
		for _, c := range p.callers {
			switch since := r.since[c]; {
			case since == 0 || !c.Terms.Fair || c.over && c.hold == nil:
			case c.hold != nil:
				served = since
			default:
				first = min(first, since)
			}
		}
	}
	return served, first
}

// leaves makes a waiting caller of the process leave.
func (r *relay) leaves(p *process) {
	i := slices.IndexFunc(p.callers, func(c *caller) bool { return c.hold == nil && r.since[c] > 0 && !c.over })
	if i < 0 {
		return
	}
	if c := p.callers[i]; p.key.Leave(c.Caller, p.local(r.now)) != nil {
		c.over = true
		delete(r.since, c)
	}
	r.carry(p)
}
