package redlock_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// TestOneServerHasOneVote though two nodes lead to it, by two addresses or two
// databases: in an acquisition, in an extension, and in a token.
func TestOneServerHasOneVote(t *testing.T) {
	t.Parallel()
	for _, op := range []protocol.Op{protocol.OpAcquire, protocol.OpExtend, protocol.OpRaise} {
		t.Run(op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ps, l := puppets(t, 5, func(i int, asked protocol.Op, _ int) answer {
					a := answer{outcome: protocol.Granted, run: []string{"a", "b", "b", "d", "e"}[i]}
					switch {
					case asked == op && i >= 3: // three nodes grant, of two servers
						return faults[0]
					case asked == protocol.OpAcquireFenced:
						a.floor = 1
					}
					return a
				}, redlock.Renew(false))
				var opts []redlock.Option
				if op == protocol.OpRaise {
					opts = append(opts, redlock.Fenced())
				}
				k, err := l.TryAcquire(t.Context(), "x", opts...)
				if op == protocol.OpExtend {
					require.NoError(t, err)
					err = k.Extend(t.Context())
				}
				isOnly(t, err, redlock.ErrNoQuorum)
				require.ErrorIs(t, err, redlock.ErrSameServer)
				assert.Regexp(t, "puppet[23]: the same server must not vote twice: this is puppet[23]", err.Error())
				if op == protocol.OpAcquire {
					reqs, _ := ps[2].requests(protocol.OpRelease)
					assert.True(t, reqs[0].MayHold, "another database may hold the key")
				}
			})
		})
	}
}

// TestARefusalOfTheSameServerIsNotContention: it is held by ourselves there.
func TestARefusalOfTheSameServerIsNotContention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 3, func(i int, op protocol.Op, _ int) answer {
			if i == 0 {
				return answer{outcome: protocol.Granted, run: "a"}
			}
			return answer{outcome: protocol.Refused, run: "a", after: 1}
		})
		_, err := l.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrNoQuorum)
	})
}
