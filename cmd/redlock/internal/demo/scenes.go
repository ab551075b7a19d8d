// Package demo is the story of "redlock demo": a lock is taken, refused, lost and regained on
// servers that break. The demo checks everything that it shows, and fails if something did not
// happen.
package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

const (
	lockName = "demo"
	// shortTTL is short because the demo waits for it: new servers vote after one TTL, and a lock is lost after one.
	shortTTL = 1500 * time.Millisecond
	// nodeTimeout is long, because a machine that is busy with other things should
	// not look like an outage.
	nodeTimeout = time.Second
	// sceneTimeout limits the wait of a scene for an event.
	sceneTimeout = 5 * time.Second
)

// A stage has the servers of the scenes, and two clients of these servers.
type stage struct {
	*Narrator
	fleet     fleet.Fleet
	isGiven   bool // the demo must not break its servers
	n, quorum int
	names     []string // names of the nodes, as in events
	ann, bob  *redlock.Locker
	votes     chan redlock.Event // of ann
}

// Run shows all scenes on the fleet. It returns an error for the first event that did not happen as
// described, or for the first failed write.
func Run(ctx context.Context, f fleet.Fleet, n *Narrator) error {
	err := play(ctx, f, n)
	if ctx.Err() == nil { // an interrupt is not a failure
		n.end(err)
	}
	return errors.Join(err, n.err)
}

func play(ctx context.Context, f fleet.Fleet, n *Narrator) error {
	s := &stage{Narrator: n, fleet: f, isGiven: f.Kind() == fleet.Addrs, n: len(f.URLs()), votes: make(chan redlock.Event, 1024)}
	s.quorum = s.n/2 + 1
	for i, url := range f.URLs() {
		name, _, err := pool.Dialer(url)
		if err != nil {
			return err
		}
		s.names = append(s.names, name)
		n.print("   %-3s is %s", nodeName(i), name)
	}
	var err error
	if s.ann, err = s.client(redlock.Observe(s)); err != nil {
		return err
	}
	defer s.ann.Close()
	if s.bob, err = s.client(); err != nil {
		return err
	}
	defer s.bob.Close()

	if err := s.meet(ctx); err != nil {
		return err
	}
	losing := fmt.Sprintf("Ann holds the lock, TTL %v, and %d servers hang: no answers, no errors", shortTTL, s.quorum)
	if s.isGiven {
		losing = "Ann holds the lock, and Bob releases it by its value"
	}
	for _, scene := range []struct {
		title  string
		breaks bool // servers
		play   func(context.Context) error
	}{
		{fmt.Sprintf("Ann asks all %d servers for the lock %q at once; %d votes are enough", s.n, lockName, s.quorum), false, s.takeAndRefuse},
		{fmt.Sprintf("%d of %d servers are killed", s.n-s.quorum, s.n), true, s.surviveMinority},
		{"One more is killed: the majority is gone", true, s.refuseWithoutMajority},
		{"They come back", true, s.recover},
		{losing, false, s.lose},
		{fmt.Sprintf("Carol holds a lock with a fencing token; %d servers come back empty", s.quorum), true, s.forget},
	} {
		s.begin(scene.title)
		if scene.breaks && s.isGiven {
			s.skipped("these servers are not the demo's to break")
		} else if err := scene.play(ctx); err != nil {
			return err
		}
		if err := s.pause(ctx); err != nil || n.err != nil {
			return err
		}
	}
	return nil
}

// client returns a client that waits for a busy machine.
func (s *stage) client(opts ...redlock.LockerOption) (*redlock.Locker, error) {
	nodes, err := pool.OpenWith(s.fleet.URLs(), pool.DialTimeout(sceneTimeout))
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes, append([]redlock.LockerOption{redlock.TTL(shortTTL), redlock.NodeTimeout(nodeTimeout)}, opts...)...)
}

// meet takes a first lock, which waits until the servers have a vote.
func (s *stage) meet(ctx context.Context) error {
	began := time.Now()
	lock, err := s.bob.Acquire(ctx, lockName)
	if err != nil {
		return err
	}
	if waited := time.Since(began); waited > shortTTL/2 {
		s.print("   New servers may have forgotten locks, so they vote after one TTL: %v", waited.Round(100*time.Millisecond))
	}
	return s.release(ctx, s.bob, lock)
}

// Observe implements redlock.Observer for ann.
func (s *stage) Observe(e redlock.Event) {
	if e.Kind == redlock.EventVote && e.Op == protocol.OpAcquire {
		select {
		case s.votes <- e:
		default: // a renewal must not wait for a scene that reads no votes
		}
	}
}

// printVotes prints the votes of all nodes on one acquisition of ann's, in the order of the nodes.
func (s *stage) printVotes(ctx context.Context) error {
	late := time.After(sceneTimeout)
	events := make([]redlock.Event, s.n)
	for range s.n {
		select {
		case e := <-s.votes:
			events[slices.Index(s.names, e.Node)] = e
		case <-late:
			return errors.New("not every node answered")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for i, e := range events {
		s.vote(i, e)
	}
	return nil
}

// reason returns the text of a library error, without the answers of the nodes.
func reason(err error) string {
	var vote *redlock.QuorumError
	if errors.As(err, &vote) {
		err = vote.Err
	}
	return strings.TrimPrefix(err.Error(), "redlock: ")
}

func (s *stage) takeAndRefuse(ctx context.Context) error {
	lock, err := s.ann.TryAcquire(ctx, lockName)
	if err != nil {
		return err
	}
	if err := s.printVotes(ctx); err != nil {
		return err
	}
	s.shown("Ann has %d of %d votes: she holds it for %v, and it renews itself", lock.Votes(), s.n, lock.Remaining().Round(100*time.Millisecond))

	s.begin("Bob asks while Ann holds it")
	_, err = s.bob.TryAcquire(ctx, lockName)
	var q *redlock.QuorumError
	if !errors.Is(err, redlock.ErrHeld) || !errors.As(err, &q) {
		return fmt.Errorf("while Ann holds the lock Bob should be refused, but: %v", err)
	}
	free := ""
	if q.Remaining > 0 { // reported by the node that was asked last
		free = fmt.Sprintf("; it is free in %v unless it is renewed", q.Remaining.Round(100*time.Millisecond))
	}
	s.shown("Bob is refused: %s%s", reason(err), free)
	if err := lock.Release(ctx); err != nil {
		return err
	}
	lock, err = s.bob.TryAcquire(ctx, lockName)
	if err != nil {
		return fmt.Errorf("after Ann's release: %w", err)
	}
	s.shown("Ann releases it, and Bob takes it at once")
	return s.release(ctx, s.bob, lock)
}

// release releases a client's lock and waits until every answering node is free. A release returns
// when a quorum has confirmed it, but the next scene may need another node. The same client asks
// the nodes, because its questions follow its release, and any late acquisition, on the same
// connection.
func (s *stage) release(ctx context.Context, client *redlock.Locker, lock *redlock.Lock) error {
	if err := lock.Release(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sceneTimeout)
	defer cancel()
	for {
		in, err := client.Inspect(ctx, lockName)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(in.Nodes, func(n redlock.NodeState) bool { return n.Err == nil && n.TTL != 0 }) {
			return nil
		}
	}
}

func (s *stage) surviveMinority(ctx context.Context) error {
	if err := fleet.Parallel(s.n-s.quorum, func(i int) error { return s.fleet.Kill(ctx, s.quorum+i) }); err != nil {
		return err
	}
	lock, err := s.ann.TryAcquire(ctx, lockName)
	if err != nil {
		return fmt.Errorf("a majority is alive, but: %w", err)
	}
	if err := s.printVotes(ctx); err != nil {
		return err
	}
	s.shown("Ann still gets the lock, with %d of %d votes", lock.Votes(), s.n)
	return s.release(ctx, s.ann, lock)
}

func (s *stage) refuseWithoutMajority(ctx context.Context) error {
	if err := s.fleet.Kill(ctx, s.quorum-1); err != nil {
		return err
	}
	_, err := s.ann.TryAcquire(ctx, lockName)
	if !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrHeld) {
		return fmt.Errorf("the lock should be refused for lack of a quorum, but: %v", err)
	}
	if err := s.printVotes(ctx); err != nil {
		return err
	}
	s.shown("Ann gets an error: %s", reason(err))
	return nil
}

func (s *stage) recover(ctx context.Context) error {
	if err := fleet.Parallel(s.n-s.quorum+1, func(i int) error { return s.fleet.Restart(ctx, s.quorum-1+i, fleet.Kept) }); err != nil {
		return err
	}
	start := time.Now()
	lock, err := s.ann.Acquire(ctx, lockName, redlock.Retries(int(sceneTimeout/(50*time.Millisecond))), redlock.RetryInterval(50*time.Millisecond))
	if err != nil {
		return fmt.Errorf("all nodes are back, but: %w", err)
	}
	s.shown("Ann has the lock again, %v later: restarted servers vote after a TTL", time.Since(start).Round(time.Millisecond))
	return s.release(ctx, s.ann, lock)
}

// lose shows the loss of a lock: of its majority, or where servers must not be broken, of its keys.
func (s *stage) lose(ctx context.Context) error {
	lock, err := s.ann.Acquire(ctx, lockName)
	if err != nil {
		return err
	}
	broken := time.Now()
	if s.isGiven {
		err = s.bob.ReleaseValue(ctx, lockName, lock.Value())
	} else {
		err = fleet.Parallel(s.quorum, func(i int) error { return s.fleet.Pause(ctx, i) })
	}
	if err != nil {
		return err
	}
	select {
	case <-lock.Context().Done():
	case <-time.After(2 * shortTTL):
		return errors.New("the context of Ann did not end although her lock is lost")
	case <-ctx.Done():
		return ctx.Err()
	}
	cause := context.Cause(lock.Context())
	if !errors.Is(cause, redlock.ErrLost) || lock.Valid() {
		return fmt.Errorf("the context ended for another reason: %v", cause)
	}
	after := time.Since(broken).Round(time.Millisecond)
	if s.isGiven { // another client may have taken the keys at once
		s.shown("Ann's work is cancelled %v later: %s", after, reason(cause))
		return nil
	}
	s.shown("Ann's work is cancelled %v later, before another can have the lock", after)
	if err := fleet.Parallel(s.quorum, func(i int) error { return s.fleet.Resume(ctx, i) }); err != nil {
		return err
	}
	next, err := s.bob.Acquire(ctx, lockName, redlock.Retries(100), redlock.RetryInterval(50*time.Millisecond))
	if err != nil {
		return fmt.Errorf("the nodes answer again, but: %w", err)
	}
	s.shown("they answer again, and Bob has the lock")
	return next.Release(ctx)
}

// forget shows servers that lose their data, and fencing tokens.
func (s *stage) forget(ctx context.Context) error {
	carol, err := s.client(redlock.Fenced())
	if err != nil {
		return err
	}
	defer carol.Close()
	first, err := carol.Acquire(ctx, lockName, redlock.Renew(false))
	if err != nil {
		return err
	}
	s.shown("Carol has the lock; her token is %d", first.Fence())

	if err := fleet.Parallel(s.quorum, func(i int) error { return s.fleet.Restart(ctx, i, fleet.Lost) }); err != nil {
		return err
	}
	dave, err := s.client(redlock.Fenced())
	if err != nil {
		return err
	}
	defer dave.Close()
	_, err = dave.TryAcquire(ctx, lockName)
	for !errors.Is(err, redlock.ErrQuarantine) && err != nil && first.Valid() && ctx.Err() == nil {
		_, err = dave.TryAcquire(ctx, lockName) // on a busy machine the servers may need longer to answer
	}
	if !errors.Is(err, redlock.ErrQuarantine) {
		return fmt.Errorf("servers that came back empty should have no vote, but: %v", err)
	}
	var q *redlock.QuorumError
	errors.As(err, &q)
	s.shown("Dave is refused: the empty servers have no vote for %v", q.Remaining.Round(time.Millisecond))

	second, err := dave.Acquire(ctx, lockName)
	if err != nil {
		return err
	}
	if first.Valid() || second.Fence() <= first.Fence() {
		return fmt.Errorf("the lock of Carol, token %d, is valid: %v; Dave has token %d", first.Fence(), first.Valid(), second.Fence())
	}
	s.shown("Dave has the lock when Carol's has ended; his token: %d", second.Fence())
	return s.release(ctx, dave, second)
}
