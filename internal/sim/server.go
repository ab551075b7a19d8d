package sim

import (
	"maps"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A Server is a fake Redis server.
type Server struct {
	world *World
	index int
	name  string
	wall  wall

	keys    map[string]entry
	saved   map[string]entry
	watches map[string]*watch
	current *link // its request is being run

	run   int // counts the processes; a crash ends one
	data  int // counts the data sets: see FailOver
	named struct {
		run, data int
		text      string // the identity that they make
	}
	mute  bool // does not tell it
	down  bool // no process
	deaf  bool // while down: connecting is not refused but hangs
	hung  bool
	links []*link
	held  []*call // while hung

	// Of a Store.
	onChange func(key string)
	between  func() // called between the steps of a request
}

// An entry is a key's value and when it expires by the server's clock.
type entry struct {
	value   string
	wrong   bool                     // not a string: commands for strings fail on it
	tickets []ticket                 // of a queue, in their order; they never change
	score   *float64                 // of a counter of tokens
	readers map[string]time.Duration // until when each is one, since 1970; it never changes
	expires time.Duration
}

// text is the value of a string, or the number of a counter.
func (e entry) text() string {
	if e.score != nil {
		return strconv.FormatFloat(*e.score, 'f', -1, 64)
	}
	return e.value
}

const never time.Duration = 1<<63 - 1

// wall is a server's clock.
type wall struct {
	line  *timeline
	since time.Duration
	at    time.Duration // the reading at since
	rate  float64
}

func (c *wall) now() time.Duration {
	return c.at + time.Duration(float64(c.line.now()-c.since)*c.rate)
}

func newServer(w *World, index int, name string) *Server {
	return &Server{world: w, index: index, name: name, keys: map[string]entry{}, watches: map[string]*watch{}, wall: wall{line: &w.timeline, rate: 1}}
}

func (s *Server) String() string { return s.name }

// locked does something to the server while the World is locked.
func (s *Server) locked(do func()) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	do()
}

// SetRate makes the server's clock advance by rate seconds a second from now on.
func (s *Server) SetRate(rate float64) {
	s.locked(func() {
		s.wall.at, s.wall.since, s.wall.rate = s.wall.now(), s.wall.line.now(), rate
		s.awaitAll()
	})
}

// Hang stops the server as SIGSTOP does: it receives, and does nothing.
func (s *Server) Hang() { s.locked(func() { s.hung = true }) }

// Resume lets a hung server go on: it runs the requests that it has received meanwhile.
func (s *Server) Resume() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.hung = false
	held := s.held
	s.held = nil
	for _, c := range held {
		s.serve(c)
	}
	s.awaitAll()
}

// Crash ends the server's process. Requests that it had not run are lost, and
// their clients get Unknown. Until Restart new connections are refused.
func (s *Server) Crash() { s.crash(false) }

// Vanish is a Crash of the whole machine: connections are not even refused,
// so that requests wait for one until their time is out.
func (s *Server) Vanish() { s.crash(true) }

func (s *Server) crash(deaf bool) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.down, s.deaf, s.hung = true, deaf, false
	s.run++
	for _, c := range s.held {
		c.broken()
	}
	s.held = nil
	s.unwatched()
}

// Restart starts the server again with all its keys, as after a restart with
// appendfsync always. A Load or a Flush before it makes it forget some.
func (s *Server) Restart() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.down, s.deaf = false, false
	for _, l := range s.links {
		s.world.timeline.after(0, func() { l.client.do(l.connected) })
	}
}

// Keys returns the living keys and their values.
func (s *Server) Keys() map[string]string {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	living := map[string]string{}
	for key, e := range s.keys { // not by lookup, which gives hints of what has expired
		if !s.expired(e) {
			living[key] = e.text()
		}
	}
	return living
}

// Locks is Keys without the keys that are the library's own, which stay.
func (s *Server) Locks() map[string]string {
	all := s.Keys()
	maps.DeleteFunc(all, func(key, _ string) bool {
		_, slot := keys.OfSlot(key)
		return keys.Reserved(key) && slot == 0 && !keys.Gate.Has(key)
	})
	return all
}

// Set sets a key behind the clients' backs, for ttl or, if that is protocol.NoTTL, for ever.
func (s *Server) Set(key, value string, ttl time.Duration) { s.put(key, entry{value: value}, ttl) }

// SetWrongType makes key hold a value that is not a string, for ever.
func (s *Server) SetWrongType(key string) { s.put(key, entry{wrong: true}, protocol.NoTTL) }

// SetCounter makes key a counter of fencing tokens, for ever.
func (s *Server) SetCounter(key string, score float64) {
	s.put(key, entry{wrong: true, score: &score}, protocol.NoTTL)
}

func (s *Server) put(key string, e entry, ttl time.Duration) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	e.expires = never
	if ttl != protocol.NoTTL {
		e.expires = s.wall.now() + ttl
	}
	s.write(key, e)
}

// Del deletes a key behind the clients' backs.
func (s *Server) Del(key string) { s.locked(func() { s.remove(key) }) }

// Mute makes the server keep its run id to itself, as one whose ACL forbids INFO.
func (s *Server) Mute() { s.locked(func() { s.mute = true }) }

// Step sets the server's clock ahead by d, or back if d is below zero.
func (s *Server) Step(d time.Duration) { s.locked(func() { s.wall.at += d; s.awaitAll() }) }

// arrive takes a request off the network.
func (s *Server) arrive(c *call) { s.locked(func() { s.ifAlive(c) }) }

// ifAlive serves a call, or holds it while the server hangs. Its connection is broken if the process has ended.
func (s *Server) ifAlive(c *call) {
	switch {
	case s.down || c.run != s.run:
		c.broken()
	case s.hung:
		s.held = append(s.held, c)
	default:
		s.serve(c)
	}
}

// serve runs a request, and answers it.
func (s *Server) serve(c *call) {
	if !c.stray {
		s.current = c.link
	}
	reply := s.both(&c.req)
	s.current = nil
	if c.watches && c.link.tracked() {
		s.rememberAll(c)
	}
	s.world.tell(c, Run, reply.Outcome)
	if c.req.Epoch != "" { // who the server is was asked so shortly before that no failover there and back lies in between
		if e, ok := s.lookup(c.req.Epoch); ok {
			reply.Life = max(0, s.left(e))
		}
	}
	c.answer(reply)
}

// both runs a request, and the second step of one whose token the asker judges.
func (s *Server) both(req *protocol.Request) protocol.Reply {
	reply := s.apply(req)
	if s.between != nil && req.Judged {
		s.between()
	}
	if req.Judged && !s.zadd(req) && reply.Outcome == protocol.Granted {
		return s.raiseAgain(*req)
	}
	return reply
}

// apply runs one request, as Redis runs the commands that stand for it.
func (s *Server) apply(req *protocol.Request) protocol.Reply {
	reply := s.obey(req)
	reply.Run = s.identity()
	return reply
}

func (s *Server) obey(req *protocol.Request) protocol.Reply {
	switch {
	case req.Op == protocol.OpQueue:
		return s.stand(req)
	case req.Op == protocol.OpSlots:
		return s.lookForSlots(req)
	case req.Shared != nil:
		return s.sharing(req)
	}
	e, exists := s.lookup(req.Key)
	ours := exists && e.value == req.Value
	switch setNX := req.Op == protocol.OpAcquire || req.Judged; {
	case setNX && exists: // it looks at no type, and tells nothing of what is there
		return protocol.Reply{Outcome: protocol.Refused}
	case setNX:
		s.write(req.Key, entry{value: req.Value, expires: s.wall.now() + req.TTL})
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

// left is a key's remaining TTL: whole milliseconds, as PTTL tells it, but at least one while the key lives.
func (s *Server) left(e entry) time.Duration {
	switch e.expires {
	case 0:
		return 0
	case never:
		return protocol.NoTTL
	}
	return max(time.Millisecond, (e.expires - s.wall.now()).Truncate(time.Millisecond))
}

// unix is the time since 1970 by the server's clock.
func (s *Server) unix() time.Duration {
	return time.Duration(s.world.timeline.origin.UnixNano()) + s.wall.now()
}
