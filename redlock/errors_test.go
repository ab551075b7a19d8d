package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// TestANodesOwnDeadlineIsNotTheCallers: an error of a node that wraps a
// context's must not look as if the caller's context had ended.
func TestANodesOwnDeadlineIsNotTheCallers(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			_, l := puppets(t, 3, func(int, redlock.Op, int) answer {
				return answer{outcome: redlock.Failed, err: fmt.Errorf("dial: %w", cause)}
			})
			_, err := l.TryAcquire(t.Context(), "x")
			isOnly(t, err, redlock.ErrNoQuorum)
			assert.ErrorContains(t, err, cause.Error(), "it is said all the same")
		})
	}
}

// TestAQuorumErrorTells who was asked, what each answered, after how long, and
// what it comes to, to people and to errors.As.
func TestAQuorumErrorTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("connection refused")
		_, l := puppets(t, 5, func(i int, op redlock.Op, _ int) answer {
			switch {
			case i == 0:
				return grants
			case i == 1:
				return answer{unsent: true, err: broken}
			case i == 2:
				return answer{silent: true}
			case i == 3 && op == redlock.OpRelease:
				return answer{outcome: redlock.Refused, after: leg, ttl: 7 * time.Second}
			case op == redlock.OpRelease:
				return answer{outcome: redlock.Refused, after: leg, ttl: redlock.NoTTL}
			}
			return answer{outcome: redlock.Refused, after: leg}
		})
		_, err := l.TryAcquire(t.Context(), "x")
		var quorum *redlock.QuorumError
		require.ErrorAs(t, err, &quorum)
		assert.Equal(t, "acquire", quorum.Op)
		assert.Equal(t, "x", quorum.Name)
		assert.Equal(t, 1, quorum.Votes)
		assert.Equal(t, 5, quorum.Nodes)
		assert.Equal(t, 3, quorum.Quorum)
		assert.Equal(t, 7*time.Second, quorum.Remaining, "then three of the four that answer are free")
		assert.Equal(t, redlock.ErrHeld, quorum.Err)

		var causes *multierror.Error
		require.ErrorAs(t, err, &causes)
		nodes := map[string]*redlock.NodeError{}
		for _, cause := range causes.Errors {
			var node *redlock.NodeError
			require.ErrorAs(t, cause, &node)
			nodes[node.Node] = node
		}
		assert.ErrorIs(t, err, broken)
		assert.Equal(t, broken, nodes["puppet2"].Err)
		assert.Equal(t, leg, nodes["puppet4"].After)
		assert.NotContains(t, nodes, "puppet1", "it granted")
		assert.NotContains(t, nodes, "puppet3", "its time was not up when the others decided")
		assert.Len(t, nodes, 3)

		assert.EqualError(t, err, `redlock: acquire "x": held by another (1 of 5 votes, 3 needed; free in 7s unless renewed): `+
			`puppet2: connection refused after 0s; `+
			`puppet4: holds another's value for 7s after 5ms; `+
			`puppet5: holds another's value without TTL after 5ms`)
	})
}

// TestAQuorumErrorNamesTheSilent nodes once their time is up, and says after
// how long.
func TestAQuorumErrorNamesTheSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 3, func(int, redlock.Op, int) answer { return answer{silent: true} }, redlock.NodeTimeout(70*time.Millisecond))
		_, err := l.TryAcquire(t.Context(), "x")
		assert.EqualError(t, err, `redlock: acquire "x": no quorum (0 of 3 votes, 2 needed): `+
			`puppet1: no answer after 70ms; puppet2: no answer after 70ms; puppet3: no answer after 70ms`)
	})
}
