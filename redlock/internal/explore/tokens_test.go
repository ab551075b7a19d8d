package explore

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/guard"
)

// TestForgottenTokenIsNotIssuedAgain: no lower token is issued, either. A process whose clock is
// ahead gets a token from two nodes. It dies, and one of the nodes forgets the token. Then a
// process whose clock is behind acquires the lock, which that node and the third node would grant
// with a lower token.
func TestForgottenTokenIsNotIssuedAgain(t *testing.T) {
	t.Parallel()
	network := &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 200 * time.Microsecond, silent: 2}
	r := newRelay(3, 2, 0, false, time.Millisecond, network)
	r.once = true
	terms := &core.Terms{TTL: 100 * time.Millisecond, Timeout: 30 * time.Millisecond, Renew: true, Fenced: true, Patience: time.Second}
	r.protect(terms.TTL)
	ahead, behind := r.processes[0], r.processes[1]
	ahead.ahead, behind.ahead = guard.TokenSlack*9/10, -guard.TokenSlack*9/10
	r.comes(0, terms, time.Second)
	for r.locks < 1 {
		r.step()
	}
	ahead.key, ahead.wire, ahead.callers = &core.Key{Group: ahead.group, Name: name}, nil, nil
	network.silent = -1
	r.hint(0, r.nodes[0].Forget(r.now))
	plain := *terms
	plain.Fenced = false
	r.comes(1, &plain, r.now+10*time.Millisecond) // by then the node has a record, and the process has read all records
	for r.locks < 2 || !behind.key.Idle(behind.local(r.now)) {
		r.step()
	}
	network.silent = 1
	r.comes(1, terms, r.now+guard.TokenSlack) // earlier, the node that forgot would have no vote
	for r.locks < 3 {
		r.step()
	}
	require.Empty(t, r.problem)
}
