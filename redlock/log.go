package redlock

import (
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Log writes the events of the Locker to l. Default: no log. It can be combined with Observe.
//
//	Error   a lock was lost
//	Warn    no quorum; a release that no quorum confirmed; a node's fault
//	Info    a node answers again
//	Debug   everything else: each vote, try, acquisition, extension and release, and contention
//
// Warnings about outages, and about each node's faults, are logged at most once a minute; the
// others are Debug. Records at Warn and Info concern servers. They contain no lock, votes or times,
// so they are the same in all processes. Other records contain the known attributes: name, permit,
// op, group, node, outcome, votes, elapsed, remaining and err. They have the event's context for
// handlers that look for traces. The value of a lock is never logged.
//
// A separate goroutine writes the records. If it is too slow, records are dropped, and a Warn
// reports their number: see Observer.
func Log(l *slog.Logger) LockerOption {
	return lockerOnly(func(s *settings) error {
		if l == nil {
			return refuse("Log", "nil", "omit the option for no log")
		}
		s.observers = append(s.observers, &journal{log: l, nodes: map[server]*nodeHealth{}})
		return nil
	})
}

// A journal is the Observer that writes to a log. It needs no mutex, because one goroutine at a
// time calls it.
type journal struct {
	log     *slog.Logger
	outages rateLimit
	nodes   map[server]*nodeHealth // nodes that ever had a fault
}

// A server is a server in a group; it can be in several groups.
type server struct{ group, node string }

// A nodeHealth is the logged health of a node.
type nodeHealth struct {
	faults   rateLimit
	isFaulty bool // the last record above Debug was a fault
}

// Observe implements Observer. Nearly all events are not logged, so it first checks whether the
// level is enabled.
func (j *journal) Observe(e Event) {
	if e.Dropped > 0 && j.log.Enabled(e.Context, slog.LevelWarn) {
		j.write(e, slog.LevelWarn, "redlock: the log is too slow, and events were dropped", slog.Int("dropped", e.Dropped))
	}
	level, message := j.judge(e)
	if j.log.Enabled(e.Context, level) {
		j.write(e, level, message, attrs(e, level)...)
	}
}

// write writes a record with the time of the event, because the journal may be behind.
func (j *journal) write(e Event, level slog.Level, message string, attrs ...slog.Attr) {
	var caller [1]uintptr
	runtime.Callers(2, caller[:])
	r := slog.NewRecord(e.Time, level, message, caller[0])
	r.AddAttrs(attrs...)
	_ = j.log.Handler().Handle(e.Context, r) // like slog.Logger
}

// judge returns the level and the message of an event.
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
			return j.outage(kindOf(e.Err)), "redlock: try failed"
		}
		return slog.LevelDebug, "redlock: try succeeded"
	case EventAcquired:
		return slog.LevelDebug, "redlock: lock acquired"
	}
	return slog.LevelDebug, "redlock: lock extended"
}

// outage returns the level of a failure.
func (j *journal) outage(kind error) slog.Level {
	if errors.Is(kind, ErrNoQuorum) && j.outages.allow() {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// vote returns the level and the message of a node's reply. A recovery is logged only for nodes
// whose fault was logged, so recoveries are as rare as faults. It is logged only when the node
// answers an operation on which it votes, because a node in quarantine grants releases.
func (j *journal) vote(e Event) (slog.Level, string) {
	of := server{e.Group, e.Node}
	h := j.nodes[of]
	switch {
	case e.Outcome == protocol.Failed || e.Outcome == protocol.Unknown:
		if h == nil {
			h = &nodeHealth{}
			j.nodes[of] = h
		}
		if !h.faults.allow() {
			return slog.LevelDebug, "redlock: a node's fault"
		}
		h.isFaulty = true
		return slog.LevelWarn, "redlock: a node's fault"
	case h != nil && h.isFaulty && (e.Op.Acquires() || e.Op.Extends()):
		h.isFaulty = false
		return slog.LevelInfo, "redlock: a node answers again"
	}
	return slog.LevelDebug, "redlock: a node's vote"
}

// A rateLimit lets one event through a minute, and the first at once.
type rateLimit struct{ last time.Time }

func (l *rateLimit) allow() bool {
	now := time.Now()
	if now.Sub(l.last) < time.Minute {
		return false
	}
	l.last = now
	return true
}

// kindOf returns the kind of an attempt's error. errors.Is would search all nodes' answers as well,
// which allocates memory for each failed try.
func kindOf(err error) error {
	if q, ok := err.(*QuorumError); ok {
		return q.Err
	}
	return err
}

// attrs returns the known attributes of an event. At Warn and Info it returns only the attributes
// of servers.
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
