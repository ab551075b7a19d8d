package redlock

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Log has the Locker write what it does to l. Default: nowhere. It goes together
// with Observe. For New only.
//
//	Error   a lock was lost
//	Warn    no quorum; a release that no quorum confirmed; a node's fault
//	Info    a node answers again
//	Debug   all else: each vote, try, acquisition, extension and release, and contention
//
// Outages and a node's faults come as often as somebody asks. Of those that tell
// of no quorum, and of each node's faults, one a second is a Warn and the others
// are Debug, so that no load makes a flood above Debug.
//
// Records have what is known of: name, op, node, outcome, votes, elapsed,
// remaining and err, and the context of the event, for handlers that look for
// traces there. The value of a lock is never among them.
func Log(l *slog.Logger) Option {
	return Option{shared: true, apply: func(s *settings) error {
		if l == nil {
			return errors.New("Log(nil): leave the option out for silence")
		}
		s.observers = append(s.observers, &journal{log: l, nodes: map[string]*condition{}})
		return nil
	}}
}

// A journal is the Observer that writes to a log.
type journal struct {
	log     *slog.Logger
	outages sparing
	ailing  atomic.Int32 // nodes that were reported, and have not answered since

	mu    sync.Mutex
	nodes map[string]*condition // those that ever had a fault
}

// A condition is how a node fares.
type condition struct {
	faults sparing
	ails   atomic.Bool
}

// Observe implements Observer. Of nearly all events there is nothing to be
// written, so it looks for a reader before it makes anything.
func (j *journal) Observe(e Event) {
	level, message := j.judge(e)
	if j.log.Enabled(e.Context, level) {
		j.log.LogAttrs(e.Context, level, message, attrs(e)...)
	}
}

// judge says how much an event matters, and what it is.
func (j *journal) judge(e Event) (slog.Level, string) {
	switch e.Kind {
	case EventVote:
		return j.vote(e)
	case EventLost:
		return slog.LevelError, "redlock: lock lost"
	case EventReleased:
		switch kind := kindOf(e.Err); {
		case errors.Is(kind, ErrLost):
			return slog.LevelError, "redlock: lock was lost before its release"
		case kind != nil && kind != ErrClosed:
			return j.outage(kind), "redlock: release not confirmed"
		}
		return slog.LevelDebug, "redlock: lock released"
	case EventNotAcquired:
		return j.outage(kindOf(e.Err)), "redlock: lock not acquired"
	case EventAttempt:
		if e.Err != nil {
			return j.outage(kindOf(e.Err)), "redlock: a try has failed"
		}
		return slog.LevelDebug, "redlock: a try has won"
	case EventAcquired:
		return slog.LevelDebug, "redlock: lock acquired"
	}
	return slog.LevelDebug, "redlock: lock extended"
}

// outage is the level of a failure.
func (j *journal) outage(kind error) slog.Level {
	if errors.Is(kind, ErrNoQuorum) && j.outages.pass() {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// vote judges a node's reply. That a node answers again is told only of those
// whose fault was, so it is told as rarely.
func (j *journal) vote(e Event) (slog.Level, string) {
	if e.Outcome == Failed || e.Outcome == Unknown {
		c := j.condition(e.Node)
		if !c.faults.pass() {
			return slog.LevelDebug, "redlock: a node's fault"
		}
		if c.ails.CompareAndSwap(false, true) {
			j.ailing.Add(1)
		}
		return slog.LevelWarn, "redlock: a node's fault"
	}
	if j.ailing.Load() > 0 && j.condition(e.Node).ails.CompareAndSwap(true, false) {
		j.ailing.Add(-1)
		return slog.LevelInfo, "redlock: a node answers again"
	}
	return slog.LevelDebug, "redlock: a node's vote"
}

func (j *journal) condition(node string) *condition {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.nodes[node]
	if c == nil {
		c = &condition{}
		j.nodes[node] = c
	}
	return c
}

// A sparing lets one through a second, and the first at once.
type sparing struct{ last atomic.Int64 }

func (s *sparing) pass() bool {
	now := time.Now().UnixNano()
	last := s.last.Load()
	return now-last >= int64(time.Second) && s.last.CompareAndSwap(last, now)
}

// kindOf is what the error of a vote is about. errors.Is would look through all
// nodes' answers as well, which takes memory for each failed try.
func kindOf(err error) error {
	if q, ok := err.(*QuorumError); ok {
		return q.Err
	}
	return err
}

// attrs has what is known of an event.
func attrs(e Event) []slog.Attr {
	as := []slog.Attr{slog.String("name", e.Name)}
	if e.Kind == EventVote {
		as = append(as, slog.String("op", e.Op.String()), slog.String("node", e.Node), slog.String("outcome", e.Outcome.String()))
	} else if e.Votes > 0 {
		as = append(as, slog.Int("votes", e.Votes))
	}
	as = append(as, slog.Duration("elapsed", e.Elapsed))
	if e.Remaining > 0 {
		as = append(as, slog.Duration("remaining", e.Remaining))
	}
	if e.Err != nil {
		as = append(as, slog.String("err", e.Err.Error()))
	}
	return as
}
