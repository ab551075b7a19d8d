package lease

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// leaseOf returns a lease of n nodes that began at start, granted by all.
func leaseOf(n int, start clock.Instant) *Lease { return leaseBy(newTrial(n, start), n) }

func leaseBy(r *trial, n int) *Lease {
	start := r.start
	t := &Terms{Nodes: n, TTL: 10 * time.Second, Timeout: time.Second, Hinting: quorum.All(n),
		MayWatch: func() bool { return true }, Jitter: func(time.Duration) time.Duration { return 0 }}
	l := New(t, Grant{Round: r})
	l.Granted(quorum.All(n), 0)
	l.Occupy(&Tenure{Since: start}, true, start)
	return &l
}

func newTrial(n int, start clock.Instant) *trial {
	return &trial{start: start, votes: Votes{Tally: quorum.Tally{Nodes: n}}}
}

// answer counts a node's answer to r, and tells the lease.
func (l *Lease) answer(r *trial, i int, o protocol.Outcome, now clock.Instant) Todo {
	a := Answer{Node: i, Outcome: o}
	r.count(a)
	return l.Answered(r, a, now)
}

// TestALateGrantSaysNothingAfterARefusal: the node lost the key after it granted the earlier round.
func TestALateGrantSaysNothingAfterARefusal(t *testing.T) {
	t.Parallel()
	l := leaseOf(1, 1)
	l.keyExpiries()
	require.True(t, l.HadKey(0, 2))
	l.keyRefused(0, 2)
	assert.False(t, l.HadKey(0, 3))
	l.keyGranted(0, 1)
	assert.False(t, l.HadKey(0, 3))
	l.keyGranted(0, 3)
	assert.True(t, l.HadKey(0, 3))
	known := l.keyAt(0)
	l.keyGranted(0, 1)
	assert.Equal(t, known, l.keyAt(0))
}

// TestAGrantIsNotOlderThanARefusalOfTheSameMoment if it is heard behind it. One that is only counted
// again was heard before.
func TestAGrantIsNotOlderThanARefusalOfTheSameMoment(t *testing.T) {
	t.Parallel()
	const refused = 5
	l := leaseOf(1, 1)
	l.keyRefused(0, refused)
	l.keysGranted(quorum.All(1), refused)
	assert.False(t, l.HadKey(0, refused))
	l.keyGranted(0, refused)
	assert.True(t, l.HadKey(0, refused))
}

// TestANodeThatMissesExtensionsHadTheKey for as long as the grant before them said, however many they are.
func TestANodeThatMissesExtensionsHadTheKey(t *testing.T) {
	t.Parallel()
	l := leaseOf(3, 1)
	now := clock.Instant(1)
	for range 4 {
		now = now.Add(time.Second)
		r := newTrial(3, now)
		l.Extending(r)
		for i := range 2 {
			l.answer(r, i, protocol.Granted, now)
		}
		require.True(t, l.HasProved(r))
		assert.True(t, l.HadKey(2, now))
	}
	assert.False(t, l.HadKey(2, quorum.Deadline(clock.Instant(1), l.terms.TTL)))
	assert.True(t, l.HadKey(1, quorum.Deadline(clock.Instant(1), l.terms.TTL)))
}

// TestWhatALeaseKnowsOfItsKeysIsTrue, and it knows of the last two extensions that a quorum granted.
// The judge keeps all that a node has said.
func TestWhatALeaseKnowsOfItsKeysIsTrue(t *testing.T) {
	t.Parallel()
	const nodes = 5
	type said struct {
		began, heard clock.Instant
		granted      bool
	}
	sure, unsure := 0, 0
	for seed := range uint64(1000) {
		dice := rand.New(rand.NewPCG(seed, 0))
		now := clock.Instant(1)
		history := make([][]said, nodes)
		first := newTrial(nodes, now)
		var l *Lease
		rounds := []*trial{first}
		answered := map[*trial]quorum.Set{}
		tell := func(r *trial, i int, o protocol.Outcome) {
			set := answered[r]
			if set.Has(i) {
				return
			}
			set.Add(i)
			answered[r] = set
			if o == protocol.Granted || o == protocol.Refused {
				history[i] = append(history[i], said{r.start, now, o == protocol.Granted})
			}
			if l == nil {
				r.count(Answer{Node: i, Outcome: o})
			} else {
				l.answer(r, i, o, now)
			}
		}
		for _, i := range dice.Perm(nodes)[:3] {
			tell(first, i, protocol.Granted)
		}
		l = leaseBy(first, nodes)
		l.Granted(first.votes.Granted, quorum.All(nodes))
		ttl := l.terms.TTL
		for step := 0; step < 60 && l.ended == Held; step++ {
			now += clock.Instant(dice.Int64N(int64(ttl / 8)))
			if dice.IntN(3) == 0 {
				r := newTrial(nodes, now)
				l.Extending(r)
				if dice.IntN(2) == 0 {
					l.Renewing(r)
				}
				rounds = append(rounds, r)
			}
			r := rounds[max(0, len(rounds)-1-dice.IntN(3))]
			for range dice.IntN(nodes) {
				outcome := protocol.Granted
				switch dice.IntN(12) {
				case 0:
					if outcome = protocol.Refused; r == first {
						outcome = protocol.Failed // no later extension finds the key there
					}
				case 1:
					outcome = protocol.Failed
				}
				tell(r, dice.IntN(nodes), outcome)
			}
			l.Due(now)
			for i := range nodes {
				var refused, lives clock.Instant
				for _, h := range history[i] {
					if !h.granted {
						refused, lives = h.heard, 0
					} else if h.began >= refused {
						lives = max(lives, quorum.Deadline(h.began, ttl))
					}
				}
				knows := l.HadKey(i, now)
				if knows {
					require.Greater(t, lives, now, "seed %d, step %d: node %d is not known to have the key", seed, step, i)
				}
				switch known := now < lives; {
				case l.ended != Held:
				case known && knows:
					sure++
				case known:
					unsure++
					proof := rounds[slices.IndexFunc(rounds, func(r *trial) bool { return r.mark.seq == l.proof })]
					require.False(t, proof.votes.Granted.Has(i) && refused < proof.start && now < l.until,
						"seed %d, step %d: node %d granted the last", seed, step, i)
				}
			}
		}
	}
	t.Logf("%d times known, %d times not, of what was so", sure, unsure)
	assert.Less(t, 50*unsure, sure)
}
