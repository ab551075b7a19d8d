package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// locker returns a Locker over the rig's nodes, which is connected to all nodes.
func (r *rig) locker(t *testing.T, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	return open(t, r.URLs(), opts...)
}

// open returns a connected Locker over servers given by URL. It has the long TTL and node timeout
// unless opts override them, and is closed at the end of the test.
func open(t *testing.T, urls []string, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	locker := openUnconnected(t, urls, opts...)
	connected(t, locker)
	return locker
}

func openUnconnected(t *testing.T, urls []string, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	return newLocker(t, members(t, urls, nil), opts...)
}

func newLocker(t *testing.T, members []protocol.Node, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	opts = append([]redlock.LockerOption{redlock.TTL(longTTL), redlock.NodeTimeout(nodeTimeout), redlock.MemoryGuard(false)}, opts...)
	locker, err := redlock.New(members, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, locker.Close()) })
	return locker
}

// patient are the options of nodes whose connections are not the subject of a test. They keep a busy
// machine, or its disk, from breaking connections.
var patient = []pool.Option{pool.StallTimeout(failAfter), pool.DialTimeout(failAfter)}

// members returns nodes. The nodes in tested have the options.
func members(t *testing.T, urls []string, tested []int, opts ...pool.Option) []protocol.Node {
	t.Helper()
	var all []protocol.Node
	for i := range urls {
		its := patient
		if slices.Contains(tested, i) {
			its = opts
		}
		n, err := pool.OpenWith(urls[i:i+1], its...)
		require.NoError(t, err)
		all = append(all, n...)
	}
	return all
}

// connected waits until every node answers the Locker. By then pending releases have been sent,
// because they come first on a new connection.
func connected(t *testing.T, locker *redlock.Locker) {
	t.Helper()
	answered(t, locker, "is anybody there?")
}

// answered waits until every node of a name has answered. Answers follow all earlier requests.
func answered(t *testing.T, locker *redlock.Locker, name string) {
	t.Helper()
	poll(t, failAfter, func() error {
		in, err := locker.Inspect(context.Background(), name)
		if err != nil {
			return err
		}
		for _, n := range in.Nodes {
			if n.Err != nil {
				return n.Err
			}
		}
		return nil
	})
}

// acquire acquires a free lock.
func acquire(t *testing.T, locker *redlock.Locker, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	lock, err := locker.TryAcquire(context.Background(), name, opts...)
	require.NoError(t, err)
	return lock
}

// turn acquires and releases a lock. A busy machine may lose it in between, and then needs another.
func turn(t *testing.T, locker *redlock.Locker, name string, opts ...redlock.Option) {
	t.Helper()
	poll(t, longWait, func() error {
		lock, err := acquireLate(locker, name, opts...)
		if err != nil {
			return err
		}
		return lock.Release(context.Background())
	})
}

// acquireLate acquires a lock that is not free yet: another client holds it, or nodes are about to
// return or in quarantine. It gives up after longWait and not after a number of tries, because a
// quarantine is as long as the TTL, which is longer on a slow machine (see untilFast). It tries
// every 20 ms, regardless of the nodes' answers.
func acquireLate(locker *redlock.Locker, name string, opts ...redlock.Option) (*redlock.Lock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longWait)
	defer cancel()
	return locker.Acquire(ctx, name, append(opts, redlock.Retries(redlock.Forever), redlock.RetryInterval(20*time.Millisecond))...)
}

// votes waits until the lock has this number of votes, because the last of them may arrive after
// Acquire returns.
func votes(t *testing.T, lock *redlock.Lock, want int) {
	t.Helper()
	poll(t, failAfter, func() error {
		if n := lock.Votes(); n != want {
			return fmt.Errorf("%d votes, want %d (%v)", n, want, context.Cause(lock.Context()))
		}
		return nil
	})
}

// wantOnly checks that an error matches one of the kinds and none of the others.
func wantOnly(t *testing.T, want, err error) {
	t.Helper()
	for _, kind := range []error{
		redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrMap, redlock.ErrLost, redlock.ErrReleased, redlock.ErrClosed,
		context.Canceled, context.DeadlineExceeded,
	} {
		require.Equal(t, kind == want, errors.Is(err, kind), "matching %q: %v", kind, err)
	}
}

// A watcher is an observer that counts the events for which a test waits.
type watcher struct {
	which func(redlock.Event) bool
	seen  atomic.Int64
}

func watch(which func(redlock.Event) bool) *watcher { return &watcher{which: which} }

func (w *watcher) Observe(e redlock.Event) {
	if w.which(e) {
		w.seen.Add(1)
	}
}

func (w *watcher) count() int { return int(w.seen.Load()) }

// await waits until there have been n events.
func (w *watcher) await(t *testing.T, n int) {
	t.Helper()
	poll(t, failAfter, func() error {
		if seen := w.count(); seen < n {
			return fmt.Errorf("%d of %d events seen", seen, n)
		}
		return nil
	})
}
