package redquorum_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
	"github.com/redquorum/redquorum/redlocktest"
)

// This file contains the code of README.md and docs/LIBRARY.md, token for token, as
// internal/evidence/documents checks.

// five holds five servers in this process.
type five struct{ fleet.Fleet }

func started() five {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return five{servers}
}

// locker opens a Locker that trusts the servers at once and does not mistake a busy machine for an
// outage.
func (f five) locker(opts ...redlock.LockerOption) *redlock.Locker {
	nodes, err := pool.OpenWith(f.URLs(), pool.DialTimeout(time.Minute), pool.StallTimeout(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	patient := []redlock.LockerOption{
		redlock.MemoryGuard(false), redlock.TTL(time.Minute), redlock.NodeTimeout(20 * time.Second), redlock.Patience(time.Minute),
	}
	locker, err := redlock.New(nodes, append(patient, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return locker
}

func Example() {
	servers := started()
	defer servers.Close()
	pay := func(context.Context) error {
		fmt.Println("paying")
		return nil
	}
	fmt.Println(underALock(context.Background(), servers.URLs(), pay))
	payInvoice(servers.URLs(), pay)
	// Output:
	// paying
	// <nil>
	// paying
	// paid
}

func underALock(ctx context.Context, servers []string, pay func(context.Context) error) error {
	nodes, err := pool.Open(servers...) // "redis://10.0.0.1:6379", "redis://10.0.0.2:6379", ...
	if err != nil {
		return err
	}
	locker, err := redlock.New(nodes, redlock.TTL(2*time.Second))
	if err != nil {
		return err
	}
	defer locker.Close()
	return locker.Do(ctx, "invoice:42", pay) // waits for its turn; pay's context ends if the lock is lost
}

func payInvoice(servers []string, pay func(context.Context) error) {
	nodes, err := pool.Open(servers...) // "redis://10.0.0.1:6379", "redis://10.0.0.2:6379", ...
	if err != nil {
		log.Fatal(err)
	}
	locker, err := redlock.New(nodes, redlock.TTL(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for all of it: to wait, and to pay
	defer cancel()
	err = locker.Do(ctx, "invoice:42", pay) // pay's context ends if the lock is lost
	switch {
	case errors.Is(err, redlock.ErrNoQuorum):
		log.Fatalf("too few Redis servers answer: %v", err)
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println("paid")
}

// Do and Acquire, and the contexts that end the wait and the work.
func Example_contexts() {
	servers := started()
	defer servers.Close()
	locker := servers.locker()
	defer locker.Close()
	pay := func(ctx context.Context) error {
		fmt.Println("paying under", redlock.FromContext(ctx).Name())
		return ctx.Err()
	}
	fmt.Println(payByDo(context.Background(), locker, pay), payByAcquire(context.Background(), locker, pay))
	// Output:
	// paying under invoice:42
	// paying under invoice:42
	// <nil> <nil>
}

func payByDo(ctx context.Context, locker *redlock.Locker, pay func(context.Context) error) error {
	err := locker.Do(ctx, "invoice:42", func(ctx context.Context) error {
		return pay(ctx) // ctx ends if the lock is lost
	}, redlock.Wait(10*time.Second)) // bounds the wait, not the work
	return err
}

func payByAcquire(ctx context.Context, locker *redlock.Locker, pay func(context.Context) error) error {
	lock, err := locker.Acquire(ctx, "invoice:42")
	if err != nil {
		return err
	}
	defer lock.Release(ctx)        // sends the release even if ctx has ended
	work, cancel := lock.Bind(ctx) // ends with ctx, and with the lock
	defer cancel()
	return pay(work)
}

func Example_fence() {
	servers := started()
	defer servers.Close()
	locker := servers.locker()
	defer locker.Close()
	var gate fence.Gate
	fmt.Println(writeFenced(context.Background(), locker, &gate, func() error {
		fmt.Println("written")
		return nil
	}))
	fmt.Println(errors.Is(gate.Do("account:42", 1, nil), fence.ErrStale))
	// Output:
	// written
	// <nil>
	// true
}

func writeFenced(ctx context.Context, locker *redlock.Locker, gate *fence.Gate, write func() error) error {
	lock, err := locker.Acquire(ctx, "account:42", redlock.Fenced())
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	if err := gate.Announce("account:42", lock.Fence()); err != nil { // at the resource, before the work
		return err
	}
	return gate.Do("account:42", lock.Fence(), write) // refuses a token below the highest that it has seen
}

func Example_once() {
	servers := started()
	defer servers.Close()
	locker := servers.locker()
	defer locker.Close()
	ctx := context.Background()
	write := func(ctx context.Context, tick time.Time) error { return ctx.Err() }
	report := once.Job{Locker: locker, Name: "report", Every: 5 * time.Minute}
	outcome, err := report.Run(ctx, func(ctx context.Context, tick time.Time) error {
		return write(ctx, tick)
	})
	fmt.Println(outcome == once.Ran, err)
	// Output: true <nil>
}

func Example_errors() {
	servers := started()
	locker := servers.locker(redlock.Owner("web-3"))
	defer locker.Close()
	ctx := context.Background()
	lock, err := locker.Acquire(ctx, "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	tryOnce(ctx, locker)
	lock.Release(ctx)
	fmt.Println(tryOnce(ctx, locker))
	servers.Close()
	tryOnce(ctx, locker)
	// Output:
	// held by web-3
	// <nil>
	// an outage: 0 of 5 servers granted
}

func tryOnce(ctx context.Context, locker *redlock.Locker) error {
	var vote *redlock.QuorumError
	switch lock, err := locker.TryAcquire(ctx, "invoice:42"); {
	case errors.As(err, &vote) && errors.Is(err, redlock.ErrHeld):
		fmt.Println("held by", vote.Holder.Owner) // the holder's label, by option Owner
	case errors.As(err, &vote) && errors.Is(err, redlock.ErrNoQuorum):
		fmt.Printf("an outage: %d of %d servers granted\n", vote.Votes, vote.Nodes)
	case err != nil:
		return err
	default:
		defer lock.Release(ctx)
	}
	return nil
}

func Example_httpHandler() {
	servers := started()
	defer servers.Close()
	locker := servers.locker()
	defer locker.Close()
	mux := http.NewServeMux()
	if err := handle(mux, locker, func(w http.ResponseWriter, r *http.Request) {
		lock, _ := httplock.FromContext(r.Context())
		fmt.Fprint(w, "paid under ", lock.Name())
	}); err != nil {
		log.Fatal(err)
	}
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest("POST", "/orders/42/pay", nil))
	fmt.Println(answer.Code, answer.Body)
	// Output:
	// 200 paid under order:42
}

func handle(mux *http.ServeMux, locker *redlock.Locker, pay http.HandlerFunc) error {
	serialise, err := httplock.New(locker,
		func(r *http.Request) (string, error) { return "order:" + r.PathValue("id"), nil },
		httplock.Wait(10*time.Second)) // default: one try
	if err != nil {
		return err
	}
	mux.Handle("POST /orders/{id}/pay", serialise(http.HandlerFunc(pay))) // r.Context() ends if the lock is lost
	return nil
}

func Example_leader() {
	servers := started()
	defer servers.Close()
	locker := servers.locker()
	defer locker.Close()
	ctx, stop := context.WithCancel(context.Background())
	hostname := "web-3"
	bill := func(ctx context.Context, token int64) error {
		fmt.Println("the leader has a token:", token > 0)
		stop()
		return ctx.Err()
	}
	office := election.New(locker, "billing")
	err := office.Run(ctx, hostname, func(ctx context.Context, term election.Term) error {
		return bill(ctx, term.Token()) // ctx ends if the lock is lost; a later term has a greater token
	})
	fmt.Println(err)
	// Output:
	// the leader has a token: true
	// <nil>
}

func TestLockGuardsThePayment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := redlocktest.Start(t)
		locker := servers.Locker()

		release := servers.Hold("invoice:42") // by another process
		_, err := locker.TryAcquire(t.Context(), "invoice:42")
		require.ErrorIs(t, err, redlock.ErrHeld)
		release()

		err = locker.Do(t.Context(), "invoice:42", func(ctx context.Context) error {
			servers.Lose("invoice:42") // and so the payment's context must end
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, redlock.ErrLost)

		end := servers.Outage(2) // of three
		defer end()
		_, err = locker.TryAcquire(t.Context(), "invoice:42")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
	})
}

// TestProgramWaitsThroughAnOutage: the program survives an outage of a minute before it has the
// lock, and of a minute while it holds the lock.
func TestProgramWaitsThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := redlocktest.Start(t)
		locker := servers.Locker()
		outage := func() {
			end := servers.Outage(2) // of three
			time.AfterFunc(time.Minute, end)
		}
		pay := func(ctx context.Context) error {
			outage()
			time.Sleep(70 * time.Second)
			return ctx.Err()
		}
		outage()
		start := time.Now()
		require.NoError(t, waitForServers(t.Context(), locker, pay))
		assert.GreaterOrEqual(t, time.Since(start), 130*time.Second)

		outage()
		assert.ErrorIs(t, locker.Do(t.Context(), "invoice:42", pay), redlock.ErrNoQuorum)
	})
}

func waitForServers(ctx context.Context, locker *redlock.Locker, pay func(context.Context) error) error {
	return locker.Do(ctx, "invoice:42", pay,
		redlock.Patience(5*time.Minute), // how long to wait for servers that do not answer
		redlock.TTL(2*time.Minute))      // a held lock survives a minute without a majority
}

// observed is an Observer that ignores all events.
type observed struct{}

func (observed) Observe(redlock.Event) {}

// TestCallsOfTheLibraryCompile makes each call in the tables of docs/LIBRARY.md, with each option.
func TestCallsOfTheLibraryCompile(t *testing.T) {
	t.Parallel()
	servers := started()
	defer servers.Close()
	ctx, name, names, k, n := t.Context(), "a", []string{"a", "b"}, 3, 2
	d, p, label := time.Minute, "app:", "web-3"
	logger, observer := slog.New(slog.NewTextHandler(io.Discard, nil)), observed{}
	locker := servers.locker(redlock.Prefix(p), redlock.MemoryGuard(false), redlock.MaxTTL(d), redlock.Log(logger), redlock.Observe(observer), redlock.TTL(d))
	defer locker.Close()

	lock, err := locker.Acquire(ctx, name)
	require.NoError(t, err)
	assert.NoError(t, lock.Context().Err())
	assert.True(t, lock.Valid() && lock.Remaining() > 0 && lock.Until().After(time.Now()) && lock.Votes() > 2)
	_, err = locker.TryAcquire(ctx, name)
	assert.ErrorIs(t, err, redlock.ErrHeld)
	assert.NoError(t, lock.Extend(ctx))
	assert.NoError(t, lock.ExtendFor(ctx, d))
	seen, err := locker.Inspect(ctx, name)
	require.NoError(t, err)
	value, _, held := seen.Holder()
	assert.True(t, held)
	assert.Equal(t, lock.Value(), value)
	next := servers.locker(redlock.Prefix(p), redlock.MemoryGuard(false), redlock.TTL(d))
	defer next.Close()
	adopted, err := next.Adopt(ctx, name, value)
	require.NoError(t, err)
	assert.NoError(t, next.ReleaseValue(ctx, name, value))
	assert.ErrorIs(t, adopted.Release(ctx), redlock.ErrLost)
	assert.ErrorIs(t, lock.Release(ctx), redlock.ErrLost)

	fn := func(ctx context.Context) error { return ctx.Err() }
	assert.NoError(t, locker.Do(ctx, name, fn))
	assert.NoError(t, locker.DoAll(ctx, names, fn))
	all, err := locker.AcquireAll(ctx, names)
	require.NoError(t, err)
	_, err = locker.TryAcquireAll(ctx, names)
	assert.ErrorIs(t, err, redlock.ErrHeld)
	assert.NoError(t, all.Release(ctx))

	f := func(*redlock.Lock) {}
	d /= 2 // because a vote may not last for a whole TTL
	for _, options := range [][]redlock.Option{
		{redlock.NodeTimeout(d), redlock.Patience(d), redlock.Renew(false), redlock.Owner(label)},
		{redlock.Retries(n), redlock.RetryInterval(d), redlock.MaxHold(d)}, {redlock.WarnBefore(d, f), redlock.NodeTimeout(5 * time.Second)},
		{redlock.Fenced(), redlock.Fair()}, {redlock.Shared()}, {redlock.Shared(), redlock.Exclusive()}, {redlock.Permits(k)},
	} {
		lock, err := locker.Acquire(ctx, name, options...)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, lock.Fence(), int64(0))
		assert.Less(t, lock.Permit(), k)
		permits, err := locker.InspectPermits(ctx, name, k)
		require.NoError(t, err)
		assert.Len(t, permits, k)
		assert.NoError(t, lock.Release(ctx))
	}
	assert.NoError(t, locker.Do(ctx, name, func(ctx context.Context) error {
		lock, err := locker.TryAcquire(ctx, "of a writer")
		require.NoError(t, err)
		assert.NoError(t, lock.Downgrade(ctx))
		return lock.Release(ctx)
	}))
}

func Example_groups() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 6})
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	open := func(urls []string) error {
		nodes, err := pool.Open(urls...) // of six servers
		if err != nil {
			return err
		}
		locker, err := redlock.NewGroups([]redlock.Group{
			{Name: "east", Nodes: nodes[:3]},
			{Name: "west", Nodes: nodes[3:]},
		})
		if err != nil {
			return err
		}
		defer locker.Close()
		return locker.Do(context.Background(), "invoice:42", func(context.Context) error {
			fmt.Println("invoice:42 is locked")
			return nil
		})
	}
	if err := open(servers.URLs()); err != nil {
		log.Fatal(err)
	}
	// Output: invoice:42 is locked
}
