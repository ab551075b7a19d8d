package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

const (
	demoName = "demo"
	// shortTTL is that of the lock which is lost, so that nobody waits long.
	shortTTL = 1500 * time.Millisecond
	// nodeTimeout is long, since a machine that is busy with other things should
	// not look like an outage.
	nodeTimeout = 500 * time.Millisecond
	// patience is how long a scene waits for what must happen soon.
	patience = 5 * time.Second
)

// A stage is what the scenes play on: servers, and two clients of them.
type stage struct {
	*narrator
	fleet fleet.Fleet
	n     int // nodes
	ann   *redlock.Locker
	bob   *redlock.Locker
	votes chan redlock.Event // of ann
}

// play shows all scenes, and returns an error as soon as something that was to
// be shown did not happen.
func play(ctx context.Context, f fleet.Fleet, n *narrator) error {
	s := &stage{narrator: n, fleet: f, n: len(f.URLs()), votes: make(chan redlock.Event, 1024)}
	var err error
	if s.ann, err = s.client(redlock.Observe(s)); err != nil {
		return err
	}
	defer s.ann.Close()
	if s.bob, err = s.client(); err != nil {
		return err
	}
	defer s.bob.Close()

	for _, scene := range []func(context.Context) error{
		s.takeAndRefuse, s.surviveMinority, s.refuseWithoutMajority, s.recover, s.tellLoss, s.forget,
	} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) client(opts ...redlock.Option) (*redlock.Locker, error) {
	nodes, err := pool.Open(s.fleet.URLs()...)
	if err != nil {
		return nil, err
	}
	// The servers are new, or lend themselves to a demonstration: they need not
	// remember any lock from before.
	return redlock.New(nodes, append(opts, redlock.MemoryGuard(false), redlock.NodeTimeout(nodeTimeout))...)
}

// Observe implements redlock.Observer for ann.
func (s *stage) Observe(e redlock.Event) {
	if e.Kind == redlock.EventVote && e.Op == redlock.OpAcquire {
		select {
		case s.votes <- e:
		default: // renewals of a forgotten lock must not block it
		}
	}
}

// tally prints ann's votes on one acquisition, of all nodes.
func (s *stage) tally(ctx context.Context) error {
	late := time.After(patience)
	for range s.n {
		select {
		case e := <-s.votes:
			s.vote(e)
		case <-late:
			return errors.New("not every node was heard of")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *stage) quorum() int { return s.n/2 + 1 }

// spare is how many nodes can be missing.
func (s *stage) spare() int { return s.n - s.quorum() }

func (s *stage) takeAndRefuse(ctx context.Context) error {
	s.begin(fmt.Sprintf("Ann asks all %d nodes for the lock %q at once; %d votes are enough", s.n, demoName, s.quorum()))
	lock, err := s.ann.TryAcquire(ctx, demoName)
	if err != nil {
		return err
	}
	if err := s.tally(ctx); err != nil {
		return err
	}
	if lock.Votes() != s.n {
		return fmt.Errorf("%d votes of %d healthy nodes", lock.Votes(), s.n)
	}
	s.shown("Ann holds the lock with %d of %d votes for %v, and longer: it renews itself", lock.Votes(), s.n, lock.Remaining().Round(time.Millisecond))

	s.begin("Bob asks while Ann holds it")
	if _, err := s.bob.TryAcquire(ctx, demoName); !errors.Is(err, redlock.ErrHeld) {
		return fmt.Errorf("while Ann holds the lock Bob should be refused, but: %v", err)
	} else {
		var q *redlock.QuorumError
		errors.As(err, &q)
		s.shown("Bob is refused: %v; it could be free in %v", q.Err, q.Remaining)
	}
	if err := lock.Release(ctx); err != nil {
		return err
	}
	lock, err = s.bob.TryAcquire(ctx, demoName)
	if err != nil {
		return fmt.Errorf("after Ann's release: %w", err)
	}
	s.shown("Ann releases it, and Bob takes it at once")
	return s.giveBack(ctx, s.bob, lock)
}

// giveBack releases a client's lock and waits until every node that answers is
// free. A release is done when a quorum has confirmed it, but the next scene may need
// a node that was not among those. The same client asks, since its questions
// travel behind its release, and behind an acquisition that comes late.
func (s *stage) giveBack(ctx context.Context, client *redlock.Locker, lock *redlock.Lock) error {
	if err := lock.Release(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		in, err := client.Inspect(ctx, demoName)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(in.Nodes, func(n redlock.NodeState) bool { return n.Err == nil && n.TTL != 0 }) {
			return nil
		}
	}
}

// breakable reports whether the scene's faults are possible here.
func (s *stage) breakable() bool {
	if s.fleet.Kind() == fleet.Addrs {
		s.skipped("these servers are not the demo's to break")
		return false
	}
	return true
}

func (s *stage) surviveMinority(ctx context.Context) error {
	s.begin(fmt.Sprintf("%d of %d nodes are killed", s.spare(), s.n))
	if !s.breakable() {
		return nil
	}
	for i := s.quorum(); i < s.n; i++ {
		if err := s.fleet.Kill(ctx, i); err != nil {
			return err
		}
	}
	lock, err := s.ann.TryAcquire(ctx, demoName)
	if err != nil {
		return fmt.Errorf("a majority is alive, but: %w", err)
	}
	if err := s.tally(ctx); err != nil {
		return err
	}
	s.shown("Ann still gets the lock, with %d of %d votes", lock.Votes(), s.n)
	return s.giveBack(ctx, s.ann, lock)
}

func (s *stage) refuseWithoutMajority(ctx context.Context) error {
	s.begin("One more is killed: the majority is gone")
	if !s.breakable() {
		return nil
	}
	if err := s.fleet.Kill(ctx, s.quorum()-1); err != nil {
		return err
	}
	_, err := s.ann.TryAcquire(ctx, demoName)
	if !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrHeld) {
		return fmt.Errorf("the lock should be refused for want of a quorum, but: %v", err)
	}
	if err := s.tally(ctx); err != nil {
		return err
	}
	s.shown("Ann is told so, and by whom: %v", err)
	return nil
}

func (s *stage) recover(ctx context.Context) error {
	s.begin("The nodes come back")
	if !s.breakable() {
		return nil
	}
	for i := s.quorum() - 1; i < s.n; i++ {
		if err := s.fleet.Restart(ctx, i, fleet.Kept); err != nil {
			return err
		}
	}
	start := time.Now()
	lock, err := s.ann.Acquire(ctx, demoName, redlock.Retries(int(patience/(50*time.Millisecond))), redlock.RetryInterval(50*time.Millisecond))
	if err != nil {
		return fmt.Errorf("all nodes are back, but: %w", err)
	}
	s.shown("Ann has the lock again, %v after the last one answered", time.Since(start).Round(time.Millisecond))
	return s.giveBack(ctx, s.ann, lock)
}

func (s *stage) tellLoss(ctx context.Context) error {
	if s.fleet.Kind() == fleet.Addrs {
		s.begin(fmt.Sprintf("Ann holds the lock, and somebody deletes its key on %d nodes", s.quorum()))
	} else {
		s.begin(fmt.Sprintf("Ann holds the lock with a TTL of %v, and %d nodes hang: no answers, no errors", shortTTL, s.quorum()))
	}
	lock, err := s.ann.Acquire(ctx, demoName, redlock.TTL(shortTTL))
	if err != nil {
		return err
	}
	// A vote that is still under way would survive a DEL.
	for deadline := time.Now().Add(patience); s.fleet.Kind() == fleet.Addrs && lock.Votes() < s.n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("only %d of %d healthy nodes voted", lock.Votes(), s.n)
		}
	}
	broken := time.Now()
	for i := range s.quorum() {
		if err := s.takeAway(ctx, i, lock.Value()); err != nil {
			return err
		}
	}
	select {
	case <-lock.Context().Done():
	case <-time.After(2 * shortTTL):
		return errors.New("nobody told Ann that her lock is lost")
	case <-ctx.Done():
		return ctx.Err()
	}
	cause := context.Cause(lock.Context())
	if !errors.Is(cause, redlock.ErrLost) || lock.Valid() {
		return fmt.Errorf("the loss was not told as one: %v", cause)
	}
	s.shown("Ann's work is cancelled %v later, before anybody else can have the lock: %v", time.Since(broken).Round(time.Millisecond), cause)
	if s.fleet.Kind() == fleet.Addrs {
		return nil
	}
	for i := range s.quorum() {
		if err := s.fleet.Resume(ctx, i); err != nil {
			return err
		}
	}
	next, err := s.bob.Acquire(ctx, demoName, redlock.Retries(100), redlock.RetryInterval(50*time.Millisecond))
	if err != nil {
		return fmt.Errorf("the nodes answer again, but: %w", err)
	}
	s.shown("the nodes answer again, and Bob has the lock")
	return next.Release(ctx)
}

// takeAway makes node i forget ann's lock or stop answering.
func (s *stage) takeAway(ctx context.Context, i int, value string) error {
	if s.fleet.Kind() != fleet.Addrs {
		return s.fleet.Pause(ctx, i)
	}
	return deleteKey(ctx, s.fleet.URLs()[i], demoName, value)
}

// deleteKey does what an operator would do with DEL, but by any kind of URL.
func deleteKey(ctx context.Context, url, key, value string) error {
	nodes, err := pool.Open(url)
	if err != nil {
		return err
	}
	defer nodes[0].Close()
	gone := make(answer, 1)
	request := &redlock.Request{Op: redlock.OpRelease, Key: key, Value: value, Timeout: patience}
	if err := nodes[0].Submit(request, 0, gone); err != nil {
		return err
	}
	select {
	case reply := <-gone:
		if reply.Outcome != redlock.Granted {
			return fmt.Errorf("%v: deleting the key: %v %v", nodes[0], reply.Outcome, reply.Err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// An answer receives the reply to one request.
type answer chan redlock.Reply

func (a answer) Receive(_ int, r redlock.Reply) { a <- r }
