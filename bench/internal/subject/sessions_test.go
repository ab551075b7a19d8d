//go:build unix

package subject

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/redquorum/redquorum/bench/internal/backend"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

// startOwn starts a node of the subject's servers, if tests should.
func startOwn(t *testing.T, s Spec) *backend.Servers {
	t.Helper()
	product, _, _ := strings.Cut(s.Name, "-")
	need.Product(t, product, backend.Available(s.Servers))
	servers, err := backend.Start(t.Context(), s.Servers, 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, servers.Close()) })
	return servers
}

func TestSubjectsOnServersOfTheirOwn(t *testing.T) {
	for _, name := range []string{"etcd-nosync", "zookeeper-nosync", "postgresql"} {
		t.Run(name, func(t *testing.T) {
			found, err := Find([]string{name})
			require.NoError(t, err)
			s := found[0]
			servers := startOwn(t, s)
			for _, p := range []func(*testing.T, Spec, []string, string){excludes, outlivesContext, takeTurns, aWaiterWhoGaveUpHoldsNothing} {
				p(t, s, servers.URLs(), "bench:"+name)
			}
			comesBack(t, s, servers)
			if name == "etcd-nosync" {
				tellsTheEndOfASession(t, s, servers.URLs())
			}
		})
	}
}

func aWaiterWhoGaveUpHoldsNothing(t *testing.T, s Spec, urls []string, name string) {
	a, b := open(t, s, urls), open(t, s, urls)
	lock := acquire(t, a, name)
	for range 3 {
		_, err := b.Acquire(within(t, brief), name)
		assert.Equal(t, record.Gave, Outcome(err), "%v", err)
	}
	require.NoError(t, lock.Release(t.Context()))
	require.NoError(t, acquire(t, a, name).Release(t.Context()))
}

// comesBack: when the server is gone there are no locks, and afterwards there are.
func comesBack(t *testing.T, s Spec, servers *backend.Servers) {
	c := open(t, s, servers.URLs())
	require.NoError(t, servers.Kill(t.Context(), 0))
	_, err := c.Acquire(within(t, brief), "bench:gone")
	require.Error(t, err)
	assert.Contains(t, []string{record.Gave, record.NoQuorum}, Outcome(err), "%v", err)
	require.NoError(t, servers.Restart(t.Context(), 0, fleet.Kept))
	require.Eventually(t, func() bool {
		lock, err := c.Acquire(within(t, testLimit), "bench:gone")
		return err == nil && lock.Release(t.Context()) == nil
	}, testLimit, 10*time.Millisecond)
}

func tellsTheEndOfASession(t *testing.T, s Spec, urls []string) {
	c := open(t, s, urls)
	lock := acquire(t, c, "bench:ended")
	session := lock.(*sessionLock[*etcdSession]).session.session
	_, err := session.Client().Revoke(t.Context(), session.Lease())
	require.NoError(t, err)
	select {
	case <-lock.Lost():
	case <-time.After(testLimit):
		t.Fatal("no loss was told")
	}
	assert.Zero(t, lock.Until())
	assert.Equal(t, record.Lost, Outcome(lock.Release(t.Context())))
	require.NoError(t, acquire(t, c, "bench:ended").Release(t.Context()))
}

func TestTheEventsOfASessionOfZooKeeper(t *testing.T) {
	t.Parallel()
	s := &zkSession{expired: make(chan struct{}), done: make(chan struct{})}
	events, there := make(chan zk.Event), make(chan struct{})
	go s.follow(events, there)
	events <- zk.Event{State: zk.StateHasSession}
	<-there
	events <- zk.Event{State: zk.StateDisconnected}
	events <- zk.Event{State: zk.StateHasSession}
	assert.False(t, isLost(s), "a connection is not the session")
	events <- zk.Event{State: zk.StateExpired}
	events <- zk.Event{State: zk.StateExpired}
	assert.True(t, isLost(s))
	close(events)
	<-s.done
}

// A fakeSession counts its ends.
type fakeSession struct {
	gone chan struct{}
	mu   sync.Mutex
	ends int
}

func (s *fakeSession) lost() <-chan struct{} { return s.gone }
func (s *fakeSession) end()                  { s.mu.Lock(); defer s.mu.Unlock(); s.ends++ }

func TestSessionsAreKeptUntilTheyEnd(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var all []*fakeSession
	outcome := ""
	p := &sessions[*fakeSession]{outcome: func(error) string { return outcome }}
	p.open = func(context.Context) (*fakeSession, error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, &fakeSession{gone: make(chan struct{})})
		return all[len(all)-1], nil
	}
	_, err := p.start(t.Context(), 1)
	require.NoError(t, err)
	ctx := t.Context()
	take := func() *fakeSession {
		s, err := p.take(ctx)
		require.NoError(t, err)
		return s
	}
	release := func(s *fakeSession, err error) error {
		l := sessionLock[*fakeSession]{p, s, func(context.Context) error { return err }}
		return l.Release(ctx)
	}

	first, second := take(), take()
	assert.Same(t, all[0], first)
	assert.Same(t, all[1], second, "each caller has its own")
	require.NoError(t, release(first, nil))
	assert.Same(t, first, take())

	outcome = record.NoQuorum
	assert.Equal(t, record.NoQuorum, Outcome(release(first, errors.New("no answer"))))
	close(second.gone)
	assert.Equal(t, record.Lost, Outcome(release(second, nil)))

	third := take()
	p.put(third)
	close(third.gone) // while nobody has it
	fourth := take()
	p.put(fourth)
	require.NoError(t, p.Close())
	require.Len(t, all, 4)
	for i, s := range all {
		assert.Equal(t, 1, s.ends, "session %d", i)
	}

	p.open = func(context.Context) (*fakeSession, error) { return nil, errors.New("refused") }
	_, err = p.start(ctx, 3)
	assert.EqualError(t, err, "refused")
}

// coded is an error as of etcd's client.
type coded codes.Code

func (c coded) Error() string    { return codes.Code(c).String() }
func (c coded) Code() codes.Code { return codes.Code(c) }

func TestOutcomesOfOwnServers(t *testing.T) {
	t.Parallel()
	of := func(outcome func(error) string, err error) string {
		return Outcome(failed(t.Context(), err, outcome(err)))
	}
	for _, c := range []struct {
		err  error
		of   func(error) string
		want string
	}{
		{fmt.Errorf("x: %w", coded(codes.Unavailable)), etcdOutcome, record.NoQuorum},
		{status.Error(codes.Unavailable, "refused"), etcdOutcome, record.NoQuorum},
		{coded(codes.NotFound), etcdOutcome, record.Failed},
		{zk.ErrConnectionClosed, zkOutcome, record.NoQuorum},
		{zk.ErrNoNode, zkOutcome, record.Lost},
		{errors.Join(context.DeadlineExceeded, zk.ErrClosing), zkOutcome, record.Failed}, // the context of this test goes on
		{&pgconn.PgError{Code: "57P03"}, pgOutcome, record.NoQuorum},
		{&pgconn.PgError{Code: "53300"}, pgOutcome, record.Failed},
		{errors.New("broken"), pgOutcome, record.NoQuorum},
		{errNotHeld, pgOutcome, record.Lost},
	} {
		assert.Equal(t, c.want, of(c.of, c.err), "%v", c.err)
	}
	assert.Equal(t, record.Gave, Outcome(failed(ending(t), zk.ErrClosing, zkOutcome(errors.Join(context.Canceled, zk.ErrClosing)))))
	var _ interface{ Code() codes.Code } = rpctypes.EtcdError{} // or else coded is not like those of etcd
}

func TestOwnServersAreNotTheRuns(t *testing.T) {
	t.Parallel()
	_, err := addresses([]string{"etcd://127.0.0.1:1", "redis://u:secret@127.0.0.1:2"}, "etcd")
	require.ErrorContains(t, err, "URL 1")
	assert.NotContains(t, err.Error(), "secret")
	_, err = addresses(nil, "etcd")
	require.Error(t, err)
	got, err := addresses([]string{"etcd://127.0.0.1:1"}, "etcd")
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:1", strings.Join(got, ","))
}
