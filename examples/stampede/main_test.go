package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/onservers"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTestSite(t *testing.T, urls []string) *site {
	s, err := newSite(urls)
	require.NoError(t, err)
	t.Cleanup(s.close)
	s.atStep = func(int64) {}
	s.ready = make(chan struct{})
	return s
}

func TestOneRefillForEachExpiry(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		s := newTestSite(t, urls)

		cold, err := s.coldStart(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"version 1": crowd}, cold.served)
		assert.EqualValues(t, 1, cold.loads)
		assert.EqualValues(t, 2*crowd+1, cold.steps, "all have missed, waited, and looked again; one has asked")

		for range 2 {
			s.expire()
			expired, err := s.expired(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, 1, expired.loads)
			assert.Equal(t, crowd, expired.answers())
		}
		assert.EqualValues(t, 3, s.loads.Load())
	})
}

func TestAFreshEntryCostsNoLock(t *testing.T) {
	t.Parallel()
	g := Guard{Cache: &Memory{For: time.Minute, Now: time.Now}} // it would panic without a Locker
	g.Cache.Set("k", "v")
	value, err := g.Get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, "v", value)
}

func TestAnOutageOfTheLockIsNoneOfTheSite(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, onservers.Unreachable(t))
	close(s.ready)
	value, err := s.guards[0].Get(t.Context(), "front page")
	require.NoError(t, err)
	assert.Equal(t, "version 1", value)

	s.Set("front page", "old")
	s.expire()
	value, err = s.guards[0].Get(t.Context(), "front page")
	require.NoError(t, err)
	assert.Equal(t, "old", value)
	assert.EqualValues(t, 1, s.loads.Load())
}

// TestAnOutageEndsTheStory with an error that says what is wrong, whether or not something is cached.
func TestAnOutageEndsTheStory(t *testing.T) {
	t.Parallel()
	down := onservers.Unreachable(t)
	err := story(t.Context(), io.Discard, down)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, "the database was asked 75 times")

	s := newTestSite(t, down)
	s.Set("front page", "old")
	s.expire()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, g := range s.guards {
		g.Warn = func(err error) {
			s.warn(err)
			cancel()
		}
	}
	_, err = s.expired(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
}

func TestAnErrorOfTheDatabase(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		s := newTestSite(t, urls)
		g := s.guards[0]
		down := errors.New("the database is down")
		g.Load = func(context.Context, string) (string, error) { return "", down }
		_, err := g.Get(t.Context(), "front page")
		require.ErrorIs(t, err, down)
		require.NotErrorIs(t, err, redlock.ErrLost)

		s.Set("front page", "old")
		s.expire()
		value, err := g.Get(t.Context(), "front page")
		require.NoError(t, err, "stale is better than nothing")
		assert.Equal(t, "old", value)
	})
}

func TestTheStoryIsTrue(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var out strings.Builder
		require.NoError(t, story(t.Context(), &out, urls))
		assert.Contains(t, out.String(), "74 requests are served version 1 meanwhile, 1 asks")
	})
}
