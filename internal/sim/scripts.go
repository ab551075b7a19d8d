package sim

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// The operations in this file change a Server's keys as the scripts of package pool do.

// apply runs one request, as Redis runs the commands that stand for it.
func (s *store) apply(req *protocol.Request) protocol.Reply {
	reply := s.obey(req)
	reply.Run = s.identity()
	return reply
}

func (s *store) obey(req *protocol.Request) protocol.Reply {
	switch {
	case req.Op == protocol.OpQueue:
		return s.stand(req)
	case req.Op == protocol.OpSlots:
		return s.lookForSlots(req)
	case req.Op == protocol.OpKind:
		return s.lookForOthers(req)
	case req.Shared != nil:
		return s.sharing(req)
	}
	e, exists := s.lookup(req.Key)
	ours := exists && e.value == req.Value
	switch setNX := req.Op == protocol.OpAcquire; {
	case setNX && exists: // SET NX checks no type, and returns nothing about the key
		return protocol.Reply{Outcome: protocol.Refused}
	case setNX:
		s.write(req.Key, entry{value: req.Value, expires: s.now() + req.TTL})
	case req.Op == protocol.OpWatch && exists:
		return protocol.Reply{Outcome: protocol.Refused, TTL: s.left(e)}
	case exists && e.wrong && req.Op != protocol.OpAcquireFenced:
		return protocol.Reply{Outcome: protocol.Failed, Err: protocol.ErrWrongType}
	case req.Counter != "":
		return s.fenced(req)
	case req.Op == protocol.OpAdmit:
		return s.admit(req)
	case req.Op == protocol.OpMark:
		return s.mark(req)
	case req.Op == protocol.OpInspect:
		return protocol.Reply{Outcome: protocol.Granted, Value: e.value, TTL: s.left(e)}
	case req.Op == protocol.OpRelease && !ours:
		return s.refuseRelease(e)
	case req.Op == protocol.OpRelease:
		s.remove(req.Key)
	case req.Op != protocol.OpWatch && !ours: // OpExtend and OpLook
		return protocol.Reply{Outcome: protocol.Refused, TTL: s.left(e)}
	case req.Op == protocol.OpExtend:
		s.prolong(req.Key, req.TTL)
	}
	return protocol.Reply{Outcome: protocol.Granted}
}

// fenced runs an operation with a fencing token.
func (s *store) fenced(req *protocol.Request) protocol.Reply {
	e, exists := s.lookup(req.Key)
	ours := exists && e.value == req.Value
	switch {
	case req.Op == protocol.OpRaise && !ours:
		return protocol.Reply{Outcome: protocol.Refused, TTL: s.left(e)}
	case req.Op == protocol.OpReleaseFenced && ours:
		s.remove(req.Key)
		return protocol.Reply{Outcome: protocol.Granted}
	}
	counter, err := s.counter(req)
	switch {
	case err != nil:
		return protocol.Reply{Outcome: protocol.Failed, Err: err}
	case req.Op == protocol.OpAcquireFenced && exists:
		return protocol.Reply{Outcome: protocol.Refused, TTL: s.left(e)}
	case req.Op == protocol.OpReleaseFenced:
		s.accept(req, counter)
		return s.refuseRelease(e)
	case req.Op == protocol.OpAcquireFenced && req.LastToken() == counter:
		return protocol.Reply{Outcome: protocol.Refused}
	case req.Op == protocol.OpAcquireFenced:
		s.write(req.Key, entry{value: req.Value, expires: s.now() + req.TTL})
	}
	return protocol.Reply{Outcome: protocol.Granted, Floor: s.accept(req, counter)}
}

// counterLife is the time for which a token that is not ahead of the clock is remembered.
const counterLife = 24 * time.Hour

// counter returns the highest token accepted, or an error if the key does not hold a number that a
// token can follow.
func (s *store) counter(req *protocol.Request) (int64, error) {
	const highest = 1<<53 - 2
	e, exists := s.lookup(req.Counter)
	if !exists {
		return 0, nil
	}
	if e.score == nil || !(*e.score >= 0 && *e.score <= highest) || *e.score != math.Trunc(*e.score) {
		return 0, fmt.Errorf("key %q: %w", req.Counter, protocol.ErrCounter)
	}
	return int64(*e.score), nil
}

// count writes a counter.
func (s *store) count(key string, token int64, expires time.Duration) {
	score := float64(token)
	s.write(key, entry{wrong: true, score: &score, expires: expires})
}

// accept accepts the token and its block, or returns the floor above which it would accept a token.
func (s *store) accept(req *protocol.Request, counter int64) (floor int64) {
	now, slack := s.unix().Microseconds(), req.Slack.Microseconds()
	limit := now + slack
	if req.Op == protocol.OpRaise {
		limit = max(now+4*slack, counter+1000)
	}
	last := req.LastToken()
	if req.Token <= counter || req.Token < now-slack || last > limit {
		return max(counter, now)
	}
	s.count(req.Counter, last, s.now()+counterLife+5*req.Slack+max(0, time.Duration(last-now)*time.Microsecond))
	return 0
}

// refuseRelease answers a release by a client that does not hold the key.
func (s *store) refuseRelease(e entry) protocol.Reply {
	return protocol.Reply{
		Outcome: protocol.Refused, TTL: s.left(e), Readers: e.value == protocol.ReadersValue, Owner: ownerOf(e.value),
	}
}

// labelled matches the values whose label a refused release returns.
var labelled = regexp.MustCompile(`(?s)^[0-9a-f]{40} (.{1,214})$`)

func ownerOf(value string) string {
	if m := labelled.FindStringSubmatch(value); m != nil {
		return m[1]
	}
	return ""
}

// admit compares and sets the epoch record, and returns it: GET, PTTL, TIME and, if record and
// server match the request, SET with PX or KEEPTTL.
func (s *store) admit(req *protocol.Request) protocol.Reply {
	a := req.Admit
	e, _ := s.lookup(req.Key)
	run := s.identity()
	if a.New != "" && e.value == a.Old && run == a.Run {
		expires := e.expires
		if a.Life > 0 {
			expires = s.now() + a.Life
		}
		e = entry{value: strings.ReplaceAll(a.New, "@", fmt.Sprint(s.unix().Milliseconds())), expires: expires}
		s.write(req.Key, e)
	}
	return protocol.Reply{Outcome: protocol.Granted, Run: run, Life: max(0, s.left(e)), Epoch: &protocol.Epoch{
		Record: e.value, Clock: s.unix().Truncate(time.Millisecond),
	}}
}

// mark raises a mark.
func (s *store) mark(req *protocol.Request) protocol.Reply {
	e, exists := s.lookup(req.Key)
	if exists {
		n, err := strconv.ParseUint(e.value, 10, 64)
		if err != nil || len(e.value) > 16 || int64(n) >= req.Mark {
			return protocol.Reply{Outcome: protocol.Refused, TTL: s.left(e)}
		}
	}
	expires := s.now() + req.TTL
	if exists && e.expires != never {
		expires = max(expires, e.expires)
	}
	s.write(req.Key, entry{value: fmt.Sprint(req.Mark), expires: expires})
	return protocol.Reply{Outcome: protocol.Granted}
}

// lookForSlots runs an OpSlots: PTTL of each slot until enough are free.
func (s *store) lookForSlots(req *protocol.Request) protocol.Reply {
	free, looked := s.freeSlots(req)
	if len(free) > 0 {
		return protocol.Reply{Outcome: protocol.Granted, Free: free}
	}
	shortest := protocol.NoTTL
	for _, key := range looked {
		e, _ := s.lookup(key)
		if left := s.left(e); left > 0 && (shortest == protocol.NoTTL || left < shortest) {
			shortest = left
		}
	}
	return protocol.Reply{Outcome: protocol.Refused, TTL: shortest}
}

// freeSlots returns the free slots that an OpSlots finds, and the keys that it looks at.
func (s *store) freeSlots(req *protocol.Request) (free []int, looked []string) {
	for i := 0; i < req.Slots.N && len(free) < protocol.MostFree; i++ {
		slot := (req.Slots.From + i) % req.Slots.N
		looked = append(looked, req.SlotKey(slot))
		if _, there := s.lookup(req.SlotKey(slot)); !there {
			free = append(free, slot)
		}
	}
	return free, looked
}

// lookForOthers runs an OpKind.
func (s *store) lookForOthers(req *protocol.Request) protocol.Reply {
	most := req.Slots.N
	for slot := 0; slot < most; slot++ {
		e, there := s.lookup(req.SlotKey(slot))
		switch _, of := protocol.CutPermits(ownerOf(e.value)); {
		case slot == 0 && e.wrong:
			return protocol.Reply{Outcome: protocol.Failed, Err: protocol.ErrWrongType}
		case there && of != req.Slots.N && (of > 0 || slot == 0):
			return s.refuseRelease(e)
		case slot > 0:
			continue
		}
		last, _ := s.lookup(req.Slots.Kind)
		n, _ := strconv.Atoi(last.value)
		if n == req.Slots.N && 2*s.left(last) > req.TTL {
			return protocol.Reply{Outcome: protocol.Granted}
		} else if n == req.Slots.N {
			break
		}
		most = max(most, min(n, protocol.MostSlots))
	}
	s.write(req.Slots.Kind, entry{value: strconv.Itoa(req.Slots.N), expires: s.now() + req.TTL})
	return protocol.Reply{Outcome: protocol.Granted}
}

// A ticket is an entry in a queue.
type ticket struct {
	id      string
	arrived time.Duration // since 1970, like dropped
	dropped time.Duration // when the ticket may be dropped, unless it is seen again
}

func firstOf(tickets []ticket) string {
	if len(tickets) == 0 {
		return ""
	}
	return tickets[0].id
}

// stand runs an OpQueue.
func (s *store) stand(req *protocol.Request) protocol.Reply {
	e, exists := s.lookup(req.Key)
	if exists && e.tickets == nil {
		return protocol.Reply{Outcome: protocol.Failed, Err: protocol.ErrWrongType}
	}
	mine, now := req.Ticket, s.unix().Truncate(time.Microsecond)
	tickets, first, isNew := slices.Clone(e.tickets), firstOf(e.tickets), false
	isMine := func(t ticket) bool { return t.id == mine.ID }
	tickets = slices.DeleteFunc(tickets, func(t ticket) bool {
		return t.id == mine.Replaces || mine.Leave && isMine(t) || mine.Overtakes && t.id == first
	})
	if !mine.Leave {
		i := slices.IndexFunc(tickets, isMine)
		if isNew = i < 0; isNew {
			i = len(tickets)
			tickets = append(tickets, ticket{id: mine.ID, arrived: now - mine.Waited.Truncate(time.Microsecond)})
		}
		tickets[i].dropped = now + mine.Life.Truncate(time.Millisecond)
		slices.SortFunc(tickets, func(a, b ticket) int {
			return cmp.Or(cmp.Compare(a.arrived, b.arrived), cmp.Compare(a.id, b.id))
		})
		for tickets[0].dropped <= now { // our ticket is not dropped
			tickets = tickets[1:]
		}
		e.expires = max(e.expires, s.now()+3*mine.Life)
	}
	if len(tickets) == 0 { // Redis has no empty queues
		s.remove(req.Key)
	} else {
		s.write(req.Key, entry{wrong: true, tickets: tickets, expires: e.expires})
		call := func(id string) { s.write(keys.Call(req.Key, id), entry{expires: s.now() + mine.Life}) }
		switch now := firstOf(tickets); {
		case now != mine.ID && now != first: // the earlier tickets were dropped
			call(now)
		case now == mine.ID && isNew && first != "" && first != mine.Replaces: // an older ticket has returned
			call(first)
		}
	}
	ahead := slices.IndexFunc(tickets, isMine)
	switch {
	case ahead < 0:
		return protocol.Reply{Outcome: protocol.Granted, Others: len(tickets)}
	case ahead == 0 && len(tickets) == 1:
		return protocol.Reply{Outcome: protocol.Granted}
	case ahead == 0:
		return protocol.Reply{Outcome: protocol.Granted, Others: len(tickets) - 1, Next: max(time.Microsecond, now-tickets[1].arrived)}
	}
	return protocol.Reply{Outcome: protocol.Refused, Others: ahead}
}
