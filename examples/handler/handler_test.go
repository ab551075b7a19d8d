package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/onservers"
	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limited is for tests that would wait for ever if something were wrong.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newTestShop opens at once, where the story waits until new servers have a vote.
func newTestShop(t *testing.T, urls []string) *shop {
	s, err := newShop(limited(t), urls, redlock.MemoryGuard(false))
	require.NoError(t, err)
	t.Cleanup(s.close)
	return s
}

func TestOneOfTwoPaysAndWhoWaitsFindsItPaid(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		s := newTestShop(t, urls)
		for _, order := range []string{"1", "2", "3"} {
			r, err := s.rush(limited(t), order)
			require.NoError(t, err)
			require.NoError(t, r.check())
			assert.NotEqual(t, r.refused.from, r.won.from)
			assert.Contains(t, []string{"1", "2"}, r.refused.retryAfter, "up to the TTL, in seconds")
			assert.Contains(t, r.refused.body, "Another request is working on this.")
			assert.Equal(t, "order "+order+" is paid\n", r.won.body)
			assert.Equal(t, "order "+order+" was paid before\n", r.waited.body, "the provider was not asked again")
		}
	})
}

func TestWhoLosesTheLockStopsOrIsRefused(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		s := newTestShop(t, urls)
		c, err := s.cutOff(limited(t), "stopped", "late")
		require.NoError(t, err)
		require.NoError(t, c.check())
		assert.Equal(t, "order late is paid\n", c.next.body)
		assert.Contains(t, c.late.body, "Another request has taken over.")
		assert.Equal(t, "5", c.outage.retryAfter)
		assert.Equal(t, "5", c.stopped.retryAfter)

		_, paid := s.ledger.Token("stopped")
		assert.False(t, paid)
		_, paid = s.ledger.Token("another")
		assert.False(t, paid)
		assert.ErrorIs(t, s.lostAt(pay("stopped")), redlock.ErrLost)
		assert.ErrorIs(t, s.lostAt(pay("late")), redlock.ErrLost)
	})
}

// The token is what keeps the late one out, so it has to be the request's own.
func TestThePaymentIsBookedWithTheTokenOfItsRequest(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		s, ctx := newTestShop(t, urls), limited(t)
		before := int64(0)
		for _, order := range []string{"1", "2"} {
			c, done, err := s.begin(ctx, s.south, pay(order))
			require.NoError(t, err)
			lock, ok := httplock.FromContext(c.ctx)
			require.True(t, ok)
			c.answer <- nil
			r, err := await(ctx, done)
			require.NoError(t, err)
			require.NoError(t, r.want(http.StatusOK, false))
			token, _ := s.ledger.Token(order)
			assert.Equal(t, lock.Fence(), token)
			assert.Greater(t, token, before)
			before = token
		}
	})
}

func TestAPaymentThatFailsIsNotBookedAndMayBeTriedAgain(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		s, ctx := newTestShop(t, urls), limited(t)
		for _, c := range []struct {
			says error
			want int
		}{{errors.New("declined"), http.StatusBadGateway}, {nil, http.StatusOK}} {
			charge, done, err := s.begin(ctx, s.north, pay("7"))
			require.NoError(t, err)
			charge.answer <- c.says
			r, err := await(ctx, done)
			require.NoError(t, err)
			assert.NoError(t, r.want(c.want, false))
			_, paid := s.ledger.Token("7")
			assert.Equal(t, c.says == nil, paid)
		}
	})
}

// Without option Fenced the token is zero, which must not look like a passed check.
func TestALockWithoutATokenCannotBook(t *testing.T) {
	t.Parallel()
	var l Ledger
	require.ErrorIs(t, l.Book("7", 0), fence.ErrToken)
	_, err := l.Paid("7", 0)
	require.ErrorIs(t, err, fence.ErrToken)
}

func TestNobodyBooksAfterALaterLook(t *testing.T) {
	t.Parallel()
	var l Ledger
	paid, err := l.Paid("7", 2)
	require.NoError(t, err)
	assert.False(t, paid)
	require.ErrorIs(t, l.Book("7", 1), fence.ErrStale)
	_, err = l.Paid("7", 1)
	require.ErrorIs(t, err, fence.ErrStale)
	require.NoError(t, l.Book("7", 2))
}

func TestTheStoryIsTrue(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var out strings.Builder
		require.NoError(t, tell(limited(t), &out, urls, redlock.MemoryGuard(false)))
		assert.Contains(t, out.String(), "Locked, Retry-After: ")
		assert.Contains(t, out.String(), "order 42 was paid before")
		assert.Contains(t, out.String(), "44, at north:  409 Conflict")
	})
}
