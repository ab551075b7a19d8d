package redlock

import (
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Log writes what the Locker does to l. Default: nowhere. It can be combined with Observe.
//
//	Error   a lock was lost
//	Warn    no quorum; a release that no quorum confirmed; a node's fault
//	Info    a node answers again
//	Debug   all else: each vote, try, acquisition, extension and release, and contention
//
// Warnings about outages, and about each node's faults, come at most once a minute; the others are
// Debug. A Warn or an Info is about servers, and names no lock, votes or times, so it is alike in
// all processes. Other records have what is known: name, permit, op, group, node, outcome, votes,
// elapsed, remaining and err, and the event's context for handlers that look for traces. The value
// of a lock is never logged.
//
// A goroutine of its own writes the records. If that is too slow, records are dropped, and a Warn
// says how many: see Observer.
func Log(l *slog.Logger) LockerOption {
	return lockerOnly(func(s *settings) error {
		if l == nil {
			return errors.New("Log(nil): leave the option out for silence")
		}
		s.observers = append(s.observers, &journal{log: l, nodes: map[server]*nodeHealth{}})
		return nil
	})
}

// A journal is the Observer that writes to a log. It needs no mutex: one goroutine at a time tells it.
type journal struct {
	log     *slog.Logger
	outages rateLimit
	nodes   map[server]*nodeHealth // those that ever had a fault
}

// A server is one in a group; it can be in several groups.
type server struct{ group, node string }

// A nodeHealth is what has been logged of a node.
type nodeHealth struct {
	faults   rateLimit
	isFaulty bool // the last that was logged above Debug is a fault
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
