package report

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// failed returns the event of a try that failed with an error of this kind.
func failed(vote redlock.QuorumError) redlock.Event {
	vote.Op, vote.Nodes, vote.Quorum = "acquire", 5, 3
	return redlock.Event{Kind: redlock.EventAttempt, Time: time.Now(), Err: &vote}
}

func heldBy(owner string, since time.Time) redlock.Event {
	return failed(redlock.QuorumError{Name: "nightly", Err: redlock.ErrHeld, Holder: redlock.Holder{Owner: owner, Since: since}, Remaining: 8 * time.Second})
}

// forgetful returns the event of a try that failed because of new servers.
func forgetful(left time.Duration) redlock.Event {
	return quarantined(left, &protocol.QuarantineError{Reason: "it is new"})
}

func quarantined(left time.Duration, q *protocol.QuarantineError) redlock.Event {
	return failed(redlock.QuorumError{
		Name: "nightly", Err: fmt.Errorf("%w yet", redlock.ErrNoQuorum), Remaining: left,
		Causes: multierror.Append(nil, &redlock.NodeError{Node: "a:1", Err: q}),
	})
}

func vote(node string, outcome protocol.Outcome, err error) redlock.Event {
	return redlock.Event{Kind: redlock.EventVote, Op: protocol.OpAcquire, Node: node, Outcome: outcome, Err: err}
}

// TestServerWithTwoNamesIsReportedOnce: it is reported even without --verbose, because it is a
// mistake in the settings.
func TestServerWithTwoNamesIsReportedOnce(t *testing.T) {
	for _, verbose := range []bool{false, true} {
		var out buffer
		r := New(&out, []string{"nightly"}, verbose, false)
		for range 3 {
			r.Observe(vote("a:1", protocol.Unknown, fmt.Errorf("%w: this is b:1 by another address", redlock.ErrSameServer)))
			r.Observe(vote("b:1", protocol.Granted, nil))
		}
		r.Waited()
		assert.Equal(t, "redlock: a:1: the same server must not vote twice: this is b:1 by another address\n", out.String())
	}
}

func TestCloseIsNotAFaultOfAServer(t *testing.T) {
	var out buffer
	r := New(&out, []string{"nightly"}, true, false)
	r.Observe(vote("a:1", protocol.Unknown, pool.ErrClosed))
	r.Observe(vote("b:1", protocol.Failed, errors.New("connection refused")))
	r.Waited()
	assert.Equal(t, "redlock: b:1: fails: connection refused\n", out.String())
}

// TestReporterWritesEachStateOnce: the number of events does not matter.
func TestReporterWritesEachStateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		r := New(&out, []string{"nightly"}, true, false)
		since := time.Now()
		for range 50 {
			time.Sleep(time.Second)
			r.Observe(vote("a:1", protocol.Failed, errors.New("refused")))
			r.Observe(vote("b:2", protocol.Refused, nil))
			released := vote("a:1", protocol.Granted, nil)
			released.Op = protocol.OpRelease // a server in quarantine grants a release, too
			r.Observe(released)
			elsewhere := vote("a:1", protocol.Granted, nil)
			elsewhere.Group = "other"
			r.Observe(elsewhere)
			r.Observe(heldBy("web-3", since))
			r.Observe(redlock.Event{Kind: redlock.EventAttempt, Err: context.DeadlineExceeded})
		}
		r.Observe(vote("a:1", protocol.Granted, nil))
		r.Observe(heldBy("web-4", since))
		r.Observe(forgetful(3 * time.Second))
		r.Observe(forgetful(2 * time.Second))
		r.Observe(quarantined(2*time.Second, &protocol.QuarantineError{Reason: "it is ahead", Behind: true}))
		r.Observe(redlock.Event{Kind: redlock.EventAcquired, Votes: 4, Elapsed: 52_345 * time.Millisecond, Remaining: 9 * time.Second})
		r.Observe(redlock.Event{Kind: redlock.EventExtended, Votes: 5})
		r.Observe(redlock.Event{Kind: redlock.EventReleased, Votes: 5, Elapsed: 12_345 * time.Microsecond})
		r.Waited()
		at := " since " + since.Local().Format(time.DateTime)
		assert.Equal(t, []string{
			"redlock: a:1: fails: refused",
			"redlock: nightly: held by web-3" + at,
			"redlock: a:1: answers again",
			"redlock: nightly: held by web-4" + at,
			"redlock: nightly: new or restarted servers have no vote yet (new ones have it after redlock reset)",
			"redlock: nightly: this machine's clock runs slower than the clocks of most servers, or stood still",
			"redlock: nightly: acquired with 4 votes after 52.3s, valid for 9s unless renewed",
			"redlock: nightly: released after 10ms, confirmed by 5 servers",
		}, strings.Split(strings.TrimSpace(out.String()), "\n"))
	})
}

// inPlace returns a reporter at a terminal with width columns.
func inPlace(out *buffer, width int) *Reporter {
	r := New(out, []string{"nightly"}, false, false)
	r.inPlace, r.erased, r.width = true, make(chan struct{}), func() int { return width }
	go r.draw()
	return r
}

// TestLineInPlaceIsUpdated: it shows the new owner and the seconds, and is erased at the end.
func TestLineInPlaceIsUpdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		r := inPlace(&out, 80)
		r.Observe(forgetful(2 * time.Second))
		synctest.Wait()
		time.Sleep(1100 * time.Millisecond)
		since := time.Now()
		r.Observe(heldBy("web-3", since))
		for range 30 {
			r.Observe(heldBy("web-3", since))
			synctest.Wait()
		}
		time.Sleep(1100 * time.Millisecond)
		r.Observe(heldBy("web-4", since.Add(time.Hour))) // the clock of the holder is ahead
		synctest.Wait()
		r.Waited()
		r.Observe(heldBy("web-5", since))
		synctest.Wait()
		assert.Equal(t, []string{
			"", "waiting for nightly: new or restarted servers have no vote yet, 2s left",
			"waiting for nightly: new or restarted servers have no vote yet, 1s left",
			"waiting for nightly: held by web-3 for 0s", "waiting for nightly: held by web-3 for 1s",
			"waiting for nightly: held by web-4 for 0s", "",
		}, strings.Split(out.String(), EraseLine))
	})
}

func TestLineInPlaceFitsTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		r := inPlace(&out, 30)
		r.Observe(heldBy("web-3 in the third row", time.Now()))
		synctest.Wait()
		r.Waited()
		assert.Equal(t, EraseLine+"waiting for nightly: held by…"+EraseLine, out.String())
	})
}

func TestBlockedTerminalDelaysNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inPlace(new(buffer), 80)
		stuck := make(chan struct{})
		r.out = blocked{stuck}
		r.Observe(heldBy("web-3", time.Now()))
		synctest.Wait()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Waited()
		}()
		time.Sleep(eraseLimit)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the command is not started")
		}
		close(stuck)
		<-r.erased
		<-ended
	})
}

// blocked is a terminal after Ctrl-S.
type blocked struct{ until chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	<-b.until
	return len(p), nil
}

// A buffer is an output that can be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestReporterNamesTheObstacleToPermits: it does not claim that all permits are held.
func TestReporterNamesTheObstacleToPermits(t *testing.T) {
	since := time.Date(2026, 11, 22, 12, 0, 0, 0, time.Local)
	for text, vote := range map[string]redlock.QuorumError{
		"held by permits of 5":                                            {Beside: 5},
		"held by a lock without permits":                                  {Beside: 1},
		"held by web-3 since 2026-11-22 12:00:00, a lock without permits": {Beside: 1, Holder: redlock.Holder{Owner: "web-3", Since: since}},
		"all 3 permits are held":                                          {Permits: 3},
		"a free permit of 3 is not found yet":                             {}, // the failed vote was for one of the permits
	} {
		r := New(&buffer{}, []string{"nightly"}, false, false)
		r.Permits, r.Weight = 3, 1
		vote.Err = redlock.ErrHeld
		says, _ := r.Refusal(&vote)
		assert.Equal(t, text, says)
		r.Waited()
	}
}
