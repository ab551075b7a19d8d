package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// The judges check progress, truth and order. The promises P1 to P6 define who may hold a lock, and
// that each call ends. The judges check when it ends, with which error, and in which order.

const (
	calmHold = 10 * time.Millisecond // maximum time for which a lock is held in a calm schedule
	quiet    = 2 * time.Second       // each worker gets a lock within this time if nothing fails and no keys are left
)

var judges = []struct {
	name    string
	isWrong func(s *schedule, c *call) bool
}{
	// A call that tries ends within three of its own timeouts, if the process runs.
	{"progress of a try", func(s *schedule, c *call) bool {
		return c.tries && !c.wasPaused() && c.over-c.came > 3*c.timeout+time.Millisecond
	}},
	// A call ends with its context.
	{"progress of an end", func(s *schedule, c *call) bool {
		return c.left > 0 && !c.wasPaused() && c.over > c.left+time.Millisecond
	}},
	// A call that waits fails for lack of a quorum after its Patience, or earlier if a majority
	// rejects it permanently.
	{"progress in an outage", func(s *schedule, c *call) bool {
		v := c.vote()
		return !c.tries && v != nil && c.left == 0 && errors.Is(v, redlock.ErrNoQuorum) && !v.Permanent() && c.over-c.came < c.patience
	}},
	// If the error reports a holder, another client holds the lock, or every lock that the error
	// names.
	{"truth of a refusal", func(s *schedule, c *call) bool {
		v := c.vote()
		if v == nil || v.Kind() != redlock.ErrHeld {
			return false
		}
		if c.left > 0 && v.Causes == nil && s.hasRival(c, (*call).isElsewhere) { // the call has waited behind the other client
			return false
		}
		names := v.InTheWay
		if names == nil {
			names = c.names[:1]
		}
		return slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(c.slots(name), func(key string) bool { return s.wasTaken(c, key) })
		})
	}},
	// If the error reports held permits, the free permits were fewer than the weight of the call.
	{"truth of permits", func(s *schedule, c *call) bool {
		v := c.vote()
		if v == nil || v.Permits == 0 {
			return false
		}
		free := 0
		for _, key := range c.slots("a") {
			if !s.wasTaken(c, key) {
				free++
			}
		}
		return free >= c.weight
	}},
	// If the error reports another caller of the process, or a lock of another kind, that caller or
	// lock exists.
	{"truth of a rival", func(s *schedule, c *call) bool {
		v := c.vote()
		return v != nil && (strings.Contains(v.Error(), "by another caller of this process") && !s.hasRival(c, (*call).isHere) ||
			v.Beside > 0 && !s.hasRival(c, (*call).isOfAnotherKind))
	}},
	// Without faults there is a quorum.
	{"truth of an outage", func(s *schedule, c *call) bool {
		v := c.vote()
		return s.calm && v != nil && errors.Is(v.Kind(), redlock.ErrNoQuorum)
	}},
	// An error matches the context's error if the context has ended. It never matches the error of
	// an event that did not happen.
	{"truth of an error", func(s *schedule, c *call) bool {
		isLeft, isClosed := errors.Is(c.err, context.Canceled), errors.Is(c.err, redlock.ErrClosed)
		return c.err != nil && !isClosed && isLeft != (c.left > 0 && c.left <= c.over) || isClosed && !c.closed.Load()
	}},
	// Each call and each lock has exactly one event for its end.
	{"truth of events", func(s *schedule, c *call) bool {
		if !c.observed {
			return false
		}
		acquired, lost := c.ended[redlock.EventAcquired], c.ended[redlock.EventLost]+c.ended[redlock.EventReleased]
		return acquired+c.ended[redlock.EventNotAcquired] != 1 || (acquired == 1) != (c.lock != nil) || lost != acquired
	}},
	// In a calm schedule, waiting callers are served within twenty turns for each lock that they
	// wait for. Waiters for permits that miss a hint look again after up to 200 ms.
	{"progress of a waiter", func(s *schedule, c *call) bool {
		limit := 20 * s.turn() * time.Duration(max(len(c.names), c.weight))
		if c.permit > 0 {
			limit += 200 * time.Millisecond
		}
		return s.calm && c.lines && c.over-c.came > limit
	}},
	// In a calm schedule, callers of one Locker get a lock in the order of their arrival. Together
	// with a reader, all waiting readers get it.
	{"order in a process", func(s *schedule, c *call) bool {
		by := time.Millisecond
		if c.permit > 0 || len(c.names) > 1 { // the call waits in line only after a try, and later callers may pass it until then
			by += 2 * s.trip
		}
		return s.isOvertaken(c, by, func(o *call) bool {
			return o.client == c.client && o.permit == c.permit && !slices.ContainsFunc(s.calls, func(with *call) bool {
				return o.reads && with.reads && with.lock != nil && with.over == o.over && with.client == o.client && with.came <= c.came
			})
		})
	}},
	// In a calm schedule, Fair callers of all Lockers get a lock in the order of their arrival.
	{"order of Fair callers", func(s *schedule, c *call) bool {
		return s.fair == 8 && s.readers == 0 && c.fair && s.isOvertaken(c, 2*s.trip+time.Millisecond, func(o *call) bool { return o.fair })
	}},
}

// judge passes all calls to the judges.
func (s *schedule) judge() {
	s.taken = takenBy(s.steps)
	for _, c := range s.calls {
		for _, j := range judges {
			if j.isWrong(s, c) {
				s.problem("%s: %v", j.name, c)
			}
		}
	}
}

// A span is a time between two moments.
type span struct{ from, until time.Duration }

const never time.Duration = 1<<63 - 1

func (s *span) overlaps(from, until time.Duration) bool { return s.from <= until && from <= s.until }

// A stay is the time during which a key of a node can have had the value of a client.
type stay struct {
	span
	client int
	value  string
	node   int
}

// takenBy returns the values that nodes have had, by key. A value that may have been forgotten
// counts as present.
func takenBy(steps []sim.Step) map[string][]*stay {
	taken := map[string][]*stay{}
	var start time.Time
	for i, step := range steps {
		if i == 0 {
			start = step.At
		}
		if step.Stage != sim.Run || step.Outcome != protocol.Granted {
			continue
		}
		now := step.At.Sub(start)
		j := slices.IndexFunc(taken[step.Key], func(t *stay) bool { return t.value == step.Value && t.node == step.Node && t.until >= now })
		switch {
		case step.Op.Releases() && j >= 0:
			taken[step.Key][j].until = now
		case step.Op.Releases(), step.Value == "", step.Op == protocol.OpWatch, step.Op == protocol.OpLook:
		case j >= 0:
			taken[step.Key][j].until = now + longest
		default:
			taken[step.Key] = append(taken[step.Key], &stay{span{now, now + longest}, step.Client, step.Value, step.Node})
		}
	}
	return taken
}

// slots returns the keys of a name that can serve the call.
func (c *call) slots(name string) (all []string) {
	for slot := range max(1, c.permit) {
		all = append(all, keys.Slot(name, slot))
	}
	return all
}

// wasTaken reports whether another caller can have had a key on a node while the call lasted.
func (s *schedule) wasTaken(c *call, key string) bool {
	from := c.came
	if c.left > 0 { // the previous attempt may be the last one with a result
		from -= longest
	}
	return slices.ContainsFunc(s.taken[key], func(t *stay) bool {
		return t.overlaps(from, c.over) && (t.client != c.id || s.hasRival(c, (*call).isHere))
	})
}

// hasRival reports whether another call that matches is and shares a name was present during the
// call. A call is present until its lock has ended, and until the keys that it may have left behind
// have expired.
func (s *schedule) hasRival(c *call, is func(c, o *call) bool) bool {
	return slices.ContainsFunc(s.calls, func(o *call) bool {
		until := max(o.over, o.gone)
		if o.over == 0 || o.lock != nil && o.gone == 0 {
			until = never - longest
		}
		return o != c && is(c, o) && o.came <= c.over && c.came <= until+longest &&
			slices.ContainsFunc(o.names, func(name string) bool { return slices.Contains(c.names, name) })
	})
}

func (c *call) isHere(o *call) bool          { return o.client == c.client }
func (c *call) isElsewhere(o *call) bool     { return o.client != c.client }
func (c *call) isOfAnotherKind(o *call) bool { return o.permit != c.permit }

// wasPaused reports whether the process was paused while the call lasted.
func (c *call) wasPaused() bool {
	return slices.ContainsFunc(c.pauses, func(p *span) bool { return p.overlaps(c.came, c.over) })
}

// turn returns the maximum length of a turn in a calm schedule, including the time for which locks
// are held.
func (s *schedule) turn() time.Duration {
	return min(max(5*time.Millisecond, 20*s.trip), 250*time.Millisecond) + calmHold
}

// isOvertaken reports whether a caller in line gets its lock after a caller that arrived later by
// more than by, and waits for the same first name.
func (s *schedule) isOvertaken(c *call, by time.Duration, is func(*call) bool) bool {
	return s.calm && c.lines && c.lock != nil && slices.ContainsFunc(s.calls, func(o *call) bool {
		return o.lines && o.lock != nil && c.came+by < o.came && o.over < c.over && o.names[0] == c.names[0] && is(o)
	})
}

func (c *call) String() string {
	kind := ""
	for _, is := range []struct {
		so   bool
		text string
	}{{c.tries, " tries"}, {c.lines, " in line"}, {c.reads, " reads"}, {c.fair, " Fair"}, {c.calm, " calm"}, {c.observed, " observed"}} {
		if is.so {
			kind += is.text
		}
	}
	return fmt.Sprintf("client %d requested %s (%d of %d permits%s, timeout %v, patience %v) at %v, left at %v, result after %v: %v; until %v, events %v", c.id,
		strings.Join(c.names, " and "), c.weight, c.permit, kind, c.timeout, c.patience, c.came, c.left, c.over-c.came, c.err, c.gone, c.ended)
}
