package redlock_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// TestAcquireDecidesAtTheDecisiveReply: for every number of grants, refusals
// and faults, in several orders, the vote ends at the very reply that decides
// it, with the right error; a lost one is taken back on all nodes, and a won
// one counts the votes that come later.
func TestAcquireDecidesAtTheDecisiveReply(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 0))
	for _, n := range []int{1, 2, 3, 4, 5, 7} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			for granted := 0; granted <= n; granted++ {
				for refused := 0; granted+refused <= n; refused++ {
					vote := make([]answer, n)
					for i := range vote {
						switch {
						case i < granted:
							vote[i] = grants
						case i < granted+refused:
							vote[i] = refuses
						default:
							vote[i] = faults[(i+granted)%len(faults)]
						}
					}
					for range 5 {
						synctest.Test(t, func(t *testing.T) {
							t.Logf("%+v", vote) // shown if it fails
							holdVote(t, vote)
						})
						dice.Shuffle(n, func(i, j int) { vote[i], vote[j] = vote[j], vote[i] })
					}
				}
			}
		})
	}
}

// holdVote has node i answer i+1 milliseconds after the start.
func holdVote(t *testing.T, vote []answer) {
	const timeout, undo = 100 * time.Millisecond, 100 * time.Microsecond
	n := len(vote)
	quorum := n/2 + 1
	ps, l := puppets(t, n, func(i int, op redlock.Op, _ int) answer {
		a := vote[i]
		if op == redlock.OpRelease {
			return answer{outcome: redlock.Refused, after: undo}
		}
		a.after = time.Duration(i+1) * time.Millisecond
		return a
	}, redlock.TTL(ttl))

	// What must come of it, told reply by reply. Nodes that are not connected
	// say so at the start.
	var granted, refused, faulty, late int
	var mayHold [64]bool
	ends, won := time.Duration(-1), false
	for instant := 0; instant <= n; instant++ {
		for i, a := range vote {
			switch {
			case a.unsent && instant == 0:
				faulty++
			case a.unsent || a.silent || instant != i+1:
			case ends >= 0 && a.outcome == redlock.Granted:
				late++
			case ends >= 0:
			case a.outcome == redlock.Granted:
				granted++
			case a.outcome == redlock.Refused:
				refused++
			default:
				faulty++
			}
		}
		if ends < 0 && (granted >= quorum || refused+faulty > n-quorum) {
			ends, won = time.Duration(instant)*time.Millisecond, granted >= quorum
			for i, a := range vote {
				came := a.unsent || !a.silent && i+1 <= instant
				mayHold[i] = !came || a.outcome == redlock.Granted || a.outcome == redlock.Unknown
			}
		}
	}
	if ends < 0 { // some never answer
		ends = timeout
		faulty = n - granted - refused
		for i, a := range vote {
			mayHold[i] = a.silent || a.outcome == redlock.Granted || a.outcome == redlock.Unknown
		}
	} else if !won && refused > 0 {
		ends += undo // to learn from the nodes that refused who is in the way
	}

	var lock *redlock.Lock
	var err error
	assert.Equal(t, ends, took(func() { lock, err = l.TryAcquire(t.Context(), "x") }), "when the vote ended")
	if won {
		require.NoError(t, err)
		assert.Equal(t, granted, lock.Votes(), "votes at the quorum")
		time.Sleep(timeout)
		assert.Equal(t, granted+late, lock.Votes(), "votes at last")
		return
	}
	kind := redlock.ErrHeld
	if faulty > n-quorum {
		kind = redlock.ErrNoQuorum
	}
	assert.ErrorIs(t, err, kind)
	for i, p := range ps {
		acquires, _ := p.requests(redlock.OpAcquire)
		releases, at := p.requests(redlock.OpRelease)
		if assert.Len(t, releases, 1, "node %d must be asked to forget", i) {
			assert.Equal(t, acquires[0].Value, releases[0].Value)
			assert.Equal(t, acquires[0].Key, releases[0].Key)
			assert.Equal(t, mayHold[i], releases[0].MayHold, "node %d may hold the value", i)
			assert.False(t, at[0].After(time.Now()))
		}
	}
}
