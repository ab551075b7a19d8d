package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// possible reports whether a lock of ttl may have been forgotten. It tries all sets of servers that
// can have voted for it together with the server that forgot.
func possible(n int, others []Account, ttl time.Duration) bool {
	for set := range 1 << len(others) {
		voted, may := 1, true
		for i, a := range others {
			if set&(1<<i) == 0 {
				continue
			}
			voted++
			may = may && (!a.Remembers || a.Longest >= ttl)
		}
		if may && voted > n/2 {
			return true
		}
	}
	return false
}

// TestForgottenMatchesThePossibleQuorums: all small sets are tested.
func TestForgottenMatchesThePossibleQuorums(t *testing.T) {
	t.Parallel()
	ttls := []time.Duration{0, 1, 2, 3}
	for n := 1; n <= 5; n++ {
		var try func(others []Account)
		try = func(others []Account) {
			if len(others) < n-1 {
				for _, ttl := range ttls {
					try(append(others, Account{true, ttl}))
					try(append(others, Account{false, ttl}))
				}
				return
			}
			longest, _, proof := Forgotten(n, others)
			bounded := !possible(n, others, time.Hour)
			require.Equal(t, bounded, proof, "%d: %v", n, others)
			if proof {
				for _, ttl := range ttls[1:] {
					require.Equal(t, possible(n, others, ttl), ttl <= longest, "%d: %v", n, others)
				}
			}
		}
		try(nil)
	}
}

// TestTTLOfASingleServerIsReturnedSeparately: this is the case if a majority has forgotten and
// there are other servers.
func TestTTLOfASingleServerIsReturnedSeparately(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	gone := Account{}
	for name, row := range map[string]struct {
		n      int
		others []Account
		want   time.Duration
		alone  time.Duration
	}{
		"alone":                        {5, []Account{{true, year}, gone, gone, gone}, 0, year},
		"two agree":                    {5, []Account{{true, year}, {true, year}, gone, gone, gone}, year, year},
		"two, the other's is shorter":  {5, []Account{{true, year}, {true, time.Hour}, gone, gone}, time.Hour, year},
		"with the node's own":          {5, []Account{{true, year}, gone, gone, gone, {false, year}}, year, year},
		"three servers cannot outvote": {3, []Account{{true, year}, gone}, year, 0},
		"nobody knows":                 {5, []Account{gone, gone, gone, gone}, 0, 0},
		"the only server, of itself":   {1, []Account{{false, year}}, year, 0},
		"the only server, of nothing":  {1, nil, 0, 0},
		"one of four, of itself":       {4, []Account{{false, year}}, 0, year},
	} {
		longest, alone, proof := Forgotten(row.n, row.others)
		assert.Equal(t, row.want, longest, name)
		assert.Equal(t, row.alone, alone, name)
		assert.False(t, proof, name)
	}
}

// TestTTLOfASingleServerIsLimited: the limit is each client's own assumption. A proof needs no
// limit.
func TestTTLOfASingleServerIsLimited(t *testing.T) {
	t.Parallel()
	const second, year = time.Second, 365 * 24 * time.Hour
	for name, row := range map[string]struct {
		loss Loss
		want time.Duration
	}{
		"nothing is told":      {Loss{}, second},
		"below the limit":      {Loss{Alone: 3 * second}, 3 * second},
		"above it":             {Loss{Alone: year}, AloneLimit * second},
		"others tell as much":  {Loss{Longest: year, Alone: year}, year},
		"proven":               {Loss{Longest: second / 2, Basis: Proof}, second / 2},
		"proven that all knew": {Loss{Longest: year, Basis: Proof}, year},
	} {
		assert.Equal(t, row.want, row.loss.Wait(second), name)
	}
}
