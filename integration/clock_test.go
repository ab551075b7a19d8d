package integration_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"
)

// A settable is a server whose wall clock can be set.
type settable struct {
	socket string
	clock  fleet.Clock
}

func startSettable(t *testing.T) *settable {
	t.Helper()
	s := &settable{clock: fleet.Clock(filepath.Join(t.TempDir(), "clock"))}
	s.set(t, 0)
	testenv.NeedRedis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{
		Nodes: 1, Arguments: []string{"--port", "0", "--save", "", "--dir", t.TempDir()}, Clocks: []fleet.Clock{s.clock},
	})
	if err != nil {
		testenv.NeedFaketime(t, fmt.Errorf("redis-server does not start with libfaketime, as where it is linked with a malloc of its own: %w", err))
	}
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	s.socket = strings.TrimPrefix(f.URLs()[0], "unix://")
	return s
}

func (s *settable) url() string { return "unix://" + s.socket }

// set sets the clock ahead of the correct time, or back.
func (s *settable) set(t *testing.T, ahead time.Duration) {
	t.Helper()
	require.NoError(t, s.clock.Set(ahead))
	if s.socket == "" {
		return
	}
	c, err := dial("unix", s.socket)
	require.NoError(t, err)
	defer c.Close()
	poll(t, failAfter, func() error {
		parts, err := redis.Int64s(c.Do("TIME"))
		if err != nil {
			return err
		}
		if off := time.Until(time.Unix(parts[0], parts[1]*1000)) - ahead; off.Abs() > 100*time.Millisecond {
			return fmt.Errorf("the server's clock is off by %v", off)
		}
		return nil
	})
}

func TestLockIsNotGrantedTwiceWhenAClockIsSetAhead(t *testing.T) {
	t.Parallel()
	untilFast(t, 2*time.Second, func(ttl time.Duration) bool { return jumpsAhead(t, ttl) })
}

// jumpsAhead is one attempt of the test above. It reports whether the machine was fast enough.
func jumpsAhead(t *testing.T, ttl time.Duration) bool {
	server := startSettable(t)
	holder := open(t, []string{server.url()}, guarding(ttl, redlock.Renew(false))...)
	contender := open(t, []string{server.url()}, guarding(ttl)...)
	trusted(t, holder)
	trusted(t, contender)
	lock, err := acquireLate(holder, "jumped")
	require.NoError(t, err)
	server.set(t, time.Hour)
	in, err := contender.Inspect(context.Background(), "jumped")
	require.NoError(t, err)
	_, _, ok := in.Holder()
	require.False(t, ok, "the server still has the key")
	if !lock.Valid() {
		return false
	}
	next, err := acquireLate(contender, "jumped")
	require.NoError(t, err)
	assert.False(t, lock.Valid(), "two hold it")
	_ = next.Release(context.Background()) // a busy machine may have lost it
	return true
}

func TestClockSetBackDisturbsNoClient(t *testing.T) {
	t.Parallel()
	server := startSettable(t)
	locker := open(t, []string{server.url()}, guarding(steadyTTL)...)
	other := open(t, []string{server.url()}, guarding(steadyTTL)...)
	trusted(t, locker)
	trusted(t, other)
	lock := acquire(t, locker, "before")
	for _, back := range []time.Duration{steadyTTL / 4, 10 * steadyTTL, time.Hour} {
		server.set(t, -back)
		_, err := other.TryAcquire(context.Background(), "before")
		wantOnly(t, redlock.ErrHeld, err)
		after := acquire(t, other, "after")
		require.NoError(t, after.Release(context.Background()))
	}
	require.NoError(t, lock.Extend(context.Background()))
	require.NoError(t, lock.Release(context.Background()))
}

func TestTokensRiseWhenTheServersClockIsSet(t *testing.T) {
	t.Parallel()
	server := startSettable(t)
	locker := open(t, []string{server.url()}, redlock.Fenced())
	late := open(t, []string{server.url()}, redlock.Fenced(), wall(-time.Minute))
	var tokens ledger
	for _, ahead := range []time.Duration{0, tokenSlack, 3 * tokenSlack, longTTL / 4, 0, time.Hour, 0, -time.Hour, 0} {
		server.set(t, ahead)
		for range 5 {
			require.NoError(t, tokens.once(locker, "jumped"), "%v ahead", ahead)
			require.NoError(t, tokens.once(late, "jumped"), "%v ahead", ahead)
		}
	}
}
