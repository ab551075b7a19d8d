package redlock

import (
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
)

// Log has the Locker write what it does to l. Default: nowhere. It goes together
// with Observe.
//
//	Error   a lock was lost
//	Warn    no quorum; a release that no quorum confirmed; a node's fault
//	Info    a node answers again
//	Debug   all else: each vote, try, acquisition, extension and release, and contention
//
// Outages and a node's faults come as often as a node is asked. Of those that tell
// of no quorum, and of each node's faults, one a minute is a Warn and the others
// are Debug, so that no load makes a flood above Debug. A Warn and an Info tell of
// servers and not of a lock: they have no lock's name, votes or times, so that
// those of all processes are alike. The records at Debug have all.
//
// Records are written in a goroutine of their own. Where that is too slow, as it is on
// a pipe that no process reads, records are dropped and not waited for, and the next
// that is written comes behind a Warn that says how many: see Observer.
//
// Others have what is known of: name, permit, op, group, node, outcome, votes,
// elapsed, remaining and err, and the context of the event, for handlers that look for
// traces there. The value of a lock is never among them.
func Log(l *slog.Logger) LockerOption {
	return lockerOnly(func(s *settings) error {
		if l == nil {
			return errors.New("Log(nil): leave the option out for silence")
		}
		s.observers = append(s.observers, &journal{log: l, nodes: map[server]*nodeHealth{}})
		return nil
	})
}

// A journal is the Observer that writes to a log.
type journal struct {
	log     *slog.Logger
	outages rateLimit
	faulty  atomic.Int32 // nodes that were reported, and have not answered since

	mu    lockorder.Mutex[lockorder.Log]
	nodes map[server]*nodeHealth // those that ever had a fault
}

// A server is one in a group; it can be in several groups.
type server struct{ group, node string }

// A nodeHealth is what has been logged of a node.
type nodeHealth struct {
	faults rateLimit
	faulty atomic.Bool // the last that was logged above Debug is a fault
}

// Observe implements Observer. Of nearly all events there is nothing to be
// written, so it looks for a reader before it makes anything.
func (j *journal) Observe(e Event) {
	if e.Dropped > 0 && j.log.Enabled(e.Context, slog.LevelWarn) {
		j.write(e, slog.LevelWarn, "redlock: the log is too slow, and events were dropped", slog.Int("dropped", e.Dropped))
	}
	level, message := j.judge(e)
	if j.log.Enabled(e.Context, level) {
		j.write(e, level, message, attrs(e, level)...)
	}
}

// write writes a record with the time of the event: the journal may be behind.
func (j *journal) write(e Event, level slog.Level, message string, attrs ...slog.Attr) {
	var caller [1]uintptr
	runtime.Callers(2, caller[:])
	r := slog.NewRecord(e.Time, level, message, caller[0])
	r.AddAttrs(attrs...)
	_ = j.log.Handler().Handle(e.Context, r) // as slog.Logger does
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
	if errors.Is(kind, ErrNoQuorum) && j.outages.allow() {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// vote judges a node's reply. That a node answers again is told only of those
// whose fault was, so it is told as rarely, and when they answer to what they vote
// on: a node in quarantine grants releases.
func (j *journal) vote(e Event) (slog.Level, string) {
	if e.Outcome == protocol.Failed || e.Outcome == protocol.Unknown {
		h := j.health(e)
		if !h.faults.allow() {
			return slog.LevelDebug, "redlock: a node's fault"
		}
		if h.faulty.CompareAndSwap(false, true) {
			j.faulty.Add(1)
		}
		return slog.LevelWarn, "redlock: a node's fault"
	}
	votes := e.Op.Acquires() || e.Op.Extends()
	if votes && j.faulty.Load() > 0 && j.health(e).faulty.CompareAndSwap(true, false) {
		j.faulty.Add(-1)
		return slog.LevelInfo, "redlock: a node answers again"
	}
	return slog.LevelDebug, "redlock: a node's vote"
}

func (j *journal) health(e Event) *nodeHealth {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := server{e.Group, e.Node}
	h := j.nodes[of]
	if h == nil {
		h = &nodeHealth{}
		j.nodes[of] = h
	}
	return h
}

// A rateLimit lets one event through a minute, and the first at once.
type rateLimit struct{ last atomic.Int64 }

func (l *rateLimit) allow() bool {
	now := time.Now().UnixNano()
	last := l.last.Load()
	return now-last >= int64(time.Minute) && l.last.CompareAndSwap(last, now)
}

// kindOf is what the error of a vote is about. errors.Is would look through all
// nodes' answers as well, which takes memory for each failed try.
func kindOf(err error) error {
	if q, ok := err.(*QuorumError); ok {
		return q.Err
	}
	return err
}

// attrs has what is known of an event, or, at Warn and Info, of the servers only.
func attrs(e Event, level slog.Level) (as []slog.Attr) {
	if e.Group != "" {
		as = append(as, slog.String("group", e.Group))
	}
	if level == slog.LevelWarn || level == slog.LevelInfo {
		if e.Kind == EventVote {
			as = append(as, slog.String("node", e.Node))
		}
		if e.Err != nil {
			as = append(as, slog.String("err", kindOf(e.Err).Error()))
		}
		return as
	}
	as = append(as, slog.String("name", e.Name))
	if e.Permits > 1 {
		as = append(as, slog.Int("permit", e.Permit))
	}
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
