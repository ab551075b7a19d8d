package sim

import (
	"maps"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// sharing runs an operation on readers, as the scripts of package pool do.
func (s *store) sharing(req *protocol.Request) protocol.Reply {
	if req.Op == protocol.OpIntend {
		return s.intend(req)
	}
	e, exists := s.lookup(req.Key)
	set, isSet := s.lookup(req.Shared.Readers)
	if exists && e.wrong || isSet && set.readers == nil {
		return protocol.Reply{Outcome: protocol.Failed, Err: protocol.ErrWrongType}
	}
	now := s.unix().Truncate(time.Millisecond)
	ours := exists && e.value == req.Value
	marked := exists && e.value == protocol.ReadersValue
	refused := protocol.Reply{Outcome: protocol.Refused, TTL: s.left(e)}
	switch req.Op {
	case protocol.OpShare:
		if exists && !marked && !ours {
			return refused
		}
		if intent, waits := s.lookup(req.Shared.Intent); waits && !req.Shared.Regardless {
			refused.TTL = max(refused.TTL, s.left(intent))
			return refused
		}
	case protocol.OpExtendShared:
		if exists && !marked && !ours {
			return refused
		}
		if !ours && (!marked || set.readers[req.Value] <= now) {
			return protocol.Reply{Outcome: protocol.Refused}
		}
	case protocol.OpReleaseShared:
		if ours {
			s.remove(req.Key)
			return protocol.Reply{Outcome: protocol.Granted}
		}
		if !marked {
			return refused
		}
		readers := maps.Clone(set.readers)
		until := readers[req.Value]
		delete(readers, req.Value)
		s.settle(req, readers, now)
		if until <= now {
			return protocol.Reply{Outcome: protocol.Refused}
		}
		return protocol.Reply{Outcome: protocol.Granted}
	}
	until := now + req.TTL.Truncate(time.Millisecond)
	if ours && e.expires != never { // a writer becomes a reader
		until = max(until, now+s.left(e))
	}
	readers := map[string]time.Duration{}
	if marked {
		maps.Copy(readers, set.readers)
		maps.DeleteFunc(readers, func(_ string, until time.Duration) bool { return until <= now })
	}
	readers[req.Value] = max(readers[req.Value], until)
	s.settle(req, readers, now)
	return protocol.Reply{Outcome: protocol.Granted}
}

// settle writes a set of readers. The marker and the set live as long as the last reader.
func (s *store) settle(req *protocol.Request, readers map[string]time.Duration, now time.Duration) {
	last := now
	for _, until := range readers {
		last = max(last, until)
	}
	if last == now {
		s.remove(req.Key)
		s.remove(req.Shared.Readers)
		return
	}
	expires := s.now() + last - now
	s.write(req.Key, entry{value: protocol.ReadersValue, expires: expires})
	s.write(req.Shared.Readers, entry{wrong: true, readers: readers, expires: expires})
}

// intend keeps new readers out for a waiting writer.
func (s *store) intend(req *protocol.Request) protocol.Reply {
	e, exists := s.lookup(req.Key)
	intent, waits := s.lookup(req.Shared.Intent)
	mine := waits && intent.value == req.Value
	switch {
	case req.TTL == 0:
		if mine {
			s.remove(req.Shared.Intent)
		}
	case mine || !waits && (req.Shared.Regardless || exists && e.value == protocol.ReadersValue):
		s.write(req.Shared.Intent, entry{value: req.Value, expires: s.now() + req.TTL})
	default:
		return protocol.Reply{Outcome: protocol.Refused, TTL: s.left(e)}
	}
	return protocol.Reply{Outcome: protocol.Granted}
}
