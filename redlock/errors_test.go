package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestNodeTimeoutIsNotAContextError: a node's error that wraps a context error must not look as if
// the caller's context had ended.
func TestNodeTimeoutIsNotAContextError(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			_, l := puppets(t, 3, func(int, protocol.Op, int) answer {
				return answer{outcome: protocol.Failed, err: fmt.Errorf("dial: %w", cause)}
			})
			_, err := l.TryAcquire(t.Context(), "x")
			isOnly(t, err, redlock.ErrNoQuorum)
			assert.ErrorContains(t, err, cause.Error(), "it is said all the same")
		})
	}
}

// TestQuorumErrorHasAllAnswers: the error has the requested nodes, the answer of each, and the
// result, as text and for errors.As.
func TestQuorumErrorHasAllAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("connection refused")
		_, l := puppets(t, 5, func(i int, op protocol.Op, _ int) answer {
			switch {
			case i == 0:
				return grants
			case i == 1:
				return answer{unsent: true, err: broken}
			case i == 2:
				return answer{silent: true}
			case i == 3 && op == protocol.OpRelease:
				return answer{outcome: protocol.Refused, after: leg, ttl: 7 * time.Second}
			case op == protocol.OpRelease:
				return answer{outcome: protocol.Refused, after: leg, ttl: protocol.NoTTL}
			}
			return answer{outcome: protocol.Refused, after: leg}
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
		assert.True(t, nodes["puppet4"].Refused())
		assert.False(t, nodes["puppet2"].Refused())
		assert.NotContains(t, nodes, "puppet1", "it granted")
		assert.NotContains(t, nodes, "puppet3", "its time was not up when the others decided")
		assert.Len(t, nodes, 3)

		assert.EqualError(t, err, `redlock: acquire "x": held by another (1 of 5 granted, 2 refused, 1 failed, 1 not heard of; 3 needed; free in 7s unless renewed): `+
			`puppet2: connection refused; `+
			`puppet4: holds another value for 7s; `+
			`puppet5: holds another value without TTL`)
	})
}

// TestQuorumErrorNamesSilentNodes: after the timeout the error names them, with the elapsed time.
func TestQuorumErrorNamesSilentNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 3, func(int, protocol.Op, int) answer { return answer{silent: true} }, redlock.NodeTimeout(70*time.Millisecond))
		_, err := l.TryAcquire(t.Context(), "x")
		assert.EqualError(t, err, `redlock: acquire "x": no quorum (0 of 3 granted, 3 failed; 2 needed): `+
			`puppet1, puppet2, puppet3: after 70ms: no answer`)
	})
}

// TestTextOfAQuorumError: the text rounds hints, separates refusing nodes from failed nodes, and
// groups nodes with the same answer.
func TestTextOfAQuorumError(t *testing.T) {
	t.Parallel()
	isNew := func(left time.Duration) error { return &protocol.QuarantineError{Reason: "it is new", Left: left} }
	eof := errors.New("EOF")
	for want, c := range map[string]struct {
		remaining time.Duration
		causes    []error
	}{
		"free in 10.1s unless":  {10102211990, nil},
		"free in 7.123s unless": {7123456789, nil},
		"free in 300ms unless":  {300 * time.Millisecond, nil},
		"(0 of 5 granted, 3 without a vote, 1 failed, 1 not heard of; 3 needed)": {0, []error{redlock.ErrSettings, redlock.ErrSameServer, isNew(0), eof}},
		"needed): n0, n2: in quarantine for another 8.967s: it is new; n1, n3: EOF; n4: says no": {
			0, []error{isNew(8960 * time.Millisecond), eof, isNew(8967 * time.Millisecond), eof, errors.New("says no")},
		},
	} {
		err := &redlock.QuorumError{Op: "acquire", Name: "x", Nodes: 5, Quorum: 3, Err: redlock.ErrHeld, Remaining: c.remaining}
		for node, cause := range c.causes {
			err.Causes = multierror.Append(err.Causes, &redlock.NodeError{Node: fmt.Sprint("n", node), Err: cause, After: time.Duration(node) * time.Millisecond})
		}
		assert.ErrorContains(t, err, want)
	}
}

// TestErrorCountsOnlyAnswers: it counts only requested nodes, and does not report an outage that
// has just begun.
func TestErrorCountsOnlyAnswers(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		k := take(t, l, "x", redlock.Renew(false))
		_, err := l.TryAcquire(t.Context(), "x")
		assert.EqualError(t, err, fmt.Sprintf(`redlock: acquire "x": held by another (held by another caller of this process; free in %v unless renewed)`, k.Remaining().Round(time.Millisecond)))
		_, err = l.Acquire(canceled(t), "y")
		assert.EqualError(t, err, `redlock: acquire "y": context canceled`)

		onAll(w, (*sim.Server).Hang)
		ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout/2)
		defer cancel()
		_, err = l.Acquire(ctx, "y")
		assert.EqualError(t, err, `redlock: acquire "y": context deadline exceeded (0 of 5 granted, 5 not heard of; 3 needed)`)
	})
	short := &redlock.QuorumError{Op: "acquire", Name: "x", Nodes: 3, Quorum: 2, Err: redlock.ErrNoQuorum, Outage: time.Second / 4000}
	assert.EqualError(t, short, `redlock: acquire "x": no quorum (0 of 3 granted, 3 not heard of; 2 needed)`)
}

// kinds lists all kinds of failures. No error may match two of them.
var kinds = []error{
	redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrLost, redlock.ErrReleased, redlock.ErrMarked, redlock.ErrMap, redlock.ErrClosed,
	context.Canceled, context.DeadlineExceeded,
}

// isOnly checks that err is of this kind, and of no other.
func isOnly(t *testing.T, err, kind error) {
	t.Helper()
	require.Error(t, err)
	for _, k := range kinds {
		assert.Equal(t, k == kind, errors.Is(err, k), "errors.Is(%q, %q)", err, k)
	}
	assert.Regexp(t, "^redlock: ", err.Error())
}

// A situation is a process and its servers, in which a call fails.
type situation struct {
	*testing.T
	w *sim.World
	l *redlock.Locker
	c *sim.Client
}

func (s *situation) occupy(n int) {
	onEach(s.w.Servers()[:n], func(s *sim.Server) { s.Set("x", "another", protocol.NoTTL) })
}

func (s *situation) hang(n int) { onEach(s.w.Servers()[:n], (*sim.Server).Hang) }

func (s *situation) spoil(n int) {
	onEach(s.w.Servers()[:n], func(s *sim.Server) { s.SetWrongType("x") })
}

func (s *situation) lose() { onEach(s.w.Servers()[:3], func(s *sim.Server) { s.Del("x") }) }

func (s *situation) has() *redlock.Lock { return take(s.T, s.l, "x") }

func (s *situation) release(k *redlock.Lock) bool { return assert.NoError(s, k.Release(s.Context())) }

// late returns a lock after its deadline.
func (s *situation) late() *redlock.Lock {
	k := take(s.T, s.l, "x", redlock.Renew(false))
	time.Sleep(ttl)
	return k
}

func (s *situation) try(ctx context.Context) error { _, err := s.l.TryAcquire(ctx, "x"); return err }

func (s *situation) wait(ctx context.Context, opts ...redlock.Option) error {
	_, err := s.l.Acquire(ctx, "x", opts...)
	return err
}

// queues starts a caller that waits before all later ones.
func (s *situation) queues() { go s.wait(s.ends(2 * time.Second)); synctest.Wait() }

func (s *situation) inspect(ctx context.Context) error { _, err := s.l.Inspect(ctx, "x"); return err }

// within returns two contexts, one with a deadline and one that is cancelled.
func (s *situation) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	s.Cleanup(cancel)
	return ctx
}

func (s *situation) ends(d time.Duration) context.Context {
	ctx, cancel := context.WithCancel(s.Context())
	time.AfterFunc(d, cancel)
	return ctx
}

// closes closes the Locker after d.
func (s *situation) closes(d time.Duration) {
	closed := make(chan struct{})
	time.AfterFunc(d, func() { defer close(closed); s.l.Close() })
	s.Cleanup(func() { <-closed })
}

// TestEveryErrorHasOneKind tests all situations.
func TestEveryErrorHasOneKind(t *testing.T) {
	const soon = 20 * time.Millisecond // less than the node timeout
	for name, row := range map[string]struct {
		kind error
		fail func(s *situation) error
	}{
		"acquire: held": {redlock.ErrHeld, func(s *situation) error { s.occupy(5); return s.try(s.Context()) }},
		"acquire: held, and a minority is down": {redlock.ErrHeld, func(s *situation) error {
			s.occupy(3)
			s.w.Servers()[3].Crash()
			s.w.Servers()[4].Hang()
			return s.try(s.Context())
		}},
		"acquire: held, tried thrice": {redlock.ErrHeld, func(s *situation) error { s.occupy(5); return s.wait(s.Context(), redlock.Retries(2)) }},
		"acquire: outage": {redlock.ErrNoQuorum, func(s *situation) error {
			onEach(s.w.Servers()[:3], (*sim.Server).Crash)
			return s.wait(s.Context())
		}},
		"acquire: an outage, and held where there is none": {redlock.ErrNoQuorum, func(s *situation) error { s.occupy(5); s.hang(3); return s.wait(s.Context()) }},
		"acquire: another type of key":                     {redlock.ErrNoQuorum, func(s *situation) error { s.spoil(5); return s.wait(s.Context()) }},
		"acquire: another type of key, of which most tell late": {redlock.ErrNoQuorum, func(s *situation) error {
			s.spoil(3)
			net := sim.Fixed(leg)
			net.Travel = func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
				if l.Op == protocol.OpRelease && l.Reply && l.Node > 0 {
					return 20 * time.Millisecond, false
				}
				return 100 * time.Microsecond, false
			}
			s.w.SetNet(net)
			return s.try(s.Context())
		}},
		"acquire: votes too late": {redlock.ErrNoQuorum, func(s *situation) error {
			time.AfterFunc(leg, s.c.Pause)
			time.AfterFunc(ttl, s.c.Resume)
			return s.try(s.Context())
		}},
		"acquire: cancelled before":              {context.Canceled, func(s *situation) error { return s.wait(canceled(s.T)) }},
		"acquire: cancelled while it votes":      {context.Canceled, func(s *situation) error { s.hang(5); return s.wait(s.ends(soon)) }},
		"acquire: deadline while it votes":       {context.DeadlineExceeded, func(s *situation) error { s.hang(5); return s.wait(s.within(soon)) }},
		"acquire: cancelled while it waits":      {context.Canceled, func(s *situation) error { s.occupy(5); return s.wait(s.ends(time.Second)) }},
		"acquire: deadline while it waits":       {context.DeadlineExceeded, func(s *situation) error { s.occupy(5); return s.wait(s.within(time.Second)) }},
		"acquire: deadline in the line":          {context.DeadlineExceeded, func(s *situation) error { s.occupy(5); s.queues(); return s.wait(s.within(time.Second)) }},
		"acquire: closed before":                 {redlock.ErrClosed, func(s *situation) error { s.l.Close(); return s.wait(s.Context()) }},
		"acquire: closed, and cancelled":         {redlock.ErrClosed, func(s *situation) error { s.l.Close(); return s.try(canceled(s.T)) }},
		"acquire: closed while it waits":         {redlock.ErrClosed, func(s *situation) error { s.occupy(5); s.closes(time.Second); return s.wait(s.Context()) }},
		"acquire: closed in the line":            {redlock.ErrClosed, func(s *situation) error { s.occupy(5); s.queues(); s.closes(time.Second); return s.wait(s.Context()) }},
		"acquire: closed while it votes":         {redlock.ErrClosed, func(s *situation) error { s.closes(leg); return s.wait(s.Context()) }},
		"acquire: closed while it votes in vain": {redlock.ErrClosed, func(s *situation) error { s.occupy(5); s.closes(leg); return s.try(s.Context()) }},
		"extend: released":                       {redlock.ErrReleased, func(s *situation) error { k := s.has(); s.release(k); return k.Extend(s.Context()) }},
		"extend: released meanwhile": {redlock.ErrReleased, func(s *situation) error {
			k := s.has()
			time.AfterFunc(leg, func() { k.Release(s.Context()) })
			return k.Extend(s.Context())
		}},
		"extend: too late":  {redlock.ErrLost, func(s *situation) error { return s.late().Extend(s.Context()) }},
		"extend: gone":      {redlock.ErrLost, func(s *situation) error { k := s.has(); s.lose(); return k.Extend(s.Context()) }},
		"extend: outage":    {redlock.ErrNoQuorum, func(s *situation) error { k := s.has(); s.hang(5); return k.Extend(s.Context()) }},
		"extend: cancelled": {context.Canceled, func(s *situation) error { k := s.has(); s.hang(5); return k.Extend(s.ends(soon)) }},
		"extend: closed":    {redlock.ErrClosed, func(s *situation) error { k := s.has(); s.l.Close(); return k.Extend(s.Context()) }},
		"release: twice":    {redlock.ErrReleased, func(s *situation) error { k := s.has(); s.release(k); return k.Release(s.Context()) }},
		"release: too late": {redlock.ErrLost, func(s *situation) error { return s.late().Release(s.Context()) }},
		"release: gone":     {redlock.ErrLost, func(s *situation) error { k := s.has(); s.lose(); return k.Release(s.Context()) }},
		"release: outage":   {redlock.ErrNoQuorum, func(s *situation) error { k := s.has(); s.hang(5); return k.Release(s.Context()) }},
		"release: deadline": {context.DeadlineExceeded, func(s *situation) error { k := s.has(); s.hang(5); return k.Release(s.within(soon)) }},
		"release: closed":   {redlock.ErrClosed, func(s *situation) error { k := s.has(); s.l.Close(); return k.Release(s.Context()) }},
		"inspect: outage":   {redlock.ErrNoQuorum, func(s *situation) error { s.hang(5); return s.inspect(s.Context()) }},
		"inspect: deadline": {context.DeadlineExceeded, func(s *situation) error { s.hang(5); return s.inspect(s.within(soon)) }},
		"inspect: closed":   {redlock.ErrClosed, func(s *situation) error { s.l.Close(); return s.inspect(s.Context()) }},
	} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			l, c := open(t, w, redlock.TTL(ttl))
			isOnly(t, row.fail(&situation{t, w, l, c}), row.kind)
		})
	}
}

// TestErrorKeepsItsKindWhenTheContextEnds: the caller can still see the obstacle, although the
// error is the context's error.
func TestErrorKeepsItsKindWhenTheContextEnds(t *testing.T) {
	for name, test := range map[string]struct {
		before func(t *testing.T, w *sim.World, l *redlock.Locker)
		kind   error
	}{
		"held elsewhere": {func(t *testing.T, w *sim.World, _ *redlock.Locker) {
			other, _ := open(t, w, longest)
			take(t, other, "x")
		}, redlock.ErrHeld},
		"held in the process": {func(t *testing.T, _ *sim.World, l *redlock.Locker) { take(t, l, "x") }, redlock.ErrHeld},
		"an outage": {func(_ *testing.T, w *sim.World, _ *redlock.Locker) {
			onEach(w.Servers()[:3], (*sim.Server).Hang)
		}, redlock.ErrNoQuorum},
	} {
		for way, opts := range map[string][]redlock.Option{"": nil, ", by interval": {redlock.RetryInterval(20 * time.Millisecond)}, ", fair": {redlock.Fair()}} {
			simulateCase(t, name+way, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, longest)
				test.before(t, w, l)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				_, err := l.Acquire(ctx, "x", opts...)
				isOnly(t, err, context.DeadlineExceeded)
				var failure *redlock.QuorumError
				require.ErrorAs(t, err, &failure)
				assert.Equal(t, test.kind, failure.Kind())
			})
		}
	}
	assert.Equal(t, redlock.ErrHeld, (&redlock.QuorumError{Err: redlock.ErrHeld}).Kind())
}

// TestErrorHasNoKindBeforeAnyAnswer: the caller's context ends before any node has answered.
func TestErrorHasNoKindBeforeAnyAnswer(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{"": nil, "fair": {redlock.Fair()}} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w, longest)
			onAll(w, (*sim.Server).Hang)
			errs := make(chan error, 3)
			for range cap(errs) { // the other callers wait in line after the first
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					_, err := l.Acquire(ctx, "x", opts...)
					errs <- err
				}()
			}
			for range cap(errs) {
				var failure *redlock.QuorumError
				require.ErrorAs(t, <-errs, &failure)
				assert.Equal(t, context.DeadlineExceeded, failure.Kind())
			}
		})
	}
}

// TestPermanentFaultIsReportedAtOnce: the fault is a key of another type.
func TestPermanentFaultIsReportedAtOnce(t *testing.T) {
	for wrong := range 6 {
		simulateCase(t, fmt.Sprint(wrong), 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w, longest)
			for i, s := range w.Servers() {
				if i < wrong {
					s.SetWrongType("x")
				} else if wrong > 0 && wrong < 3 {
					s.Hang()
				}
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			lock, err := l.Acquire(ctx, "x")
			var failure *redlock.QuorumError
			switch errors.As(err, &failure); wrong {
			case 0:
				require.NoError(t, lock.Release(t.Context()))
			case 1, 2:
				assert.False(t, failure.Permanent(), "others are only silent")
				assert.Equal(t, time.Second, time.Since(start))
			default:
				assert.True(t, failure.Permanent())
				assert.ErrorIs(t, err, redlock.ErrNoQuorum)
				assert.Less(t, time.Since(start), 100*time.Millisecond)
			}
		})
	}
}

// TestOptionErrorNamesTheOption: a program can report which of its own settings is wrong.
func TestOptionErrorNamesTheOption(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]redlock.LockerOption{
		"TTL":         {redlock.TTL(-1)},
		"NodeTimeout": {redlock.TTL(time.Second), redlock.NodeTimeout(time.Second)},
		"Owner":       {redlock.Owner("\x00")},
		"Shared":      {redlock.Shared(), redlock.Fenced()},
	} {
		_, err := redlock.New(sim.New(1, 3).NewClient(1).Nodes(), opts...)
		var refused *redlock.OptionError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, name, refused.Option)
		assert.NotEmpty(t, refused.Reason)
		assert.ErrorContains(t, err, "redlock: option "+name)
	}
}
