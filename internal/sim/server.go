package sim

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock"
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
	current *link // whose request is being run

	run   int // counts the processes; a crash ends one
	runID string
	mute  bool // does not tell it
	down  bool // no process
	deaf  bool // while down: connecting is not refused but hangs
	hung  bool
	links []*link
	queue []*call // received while hung
}

// An entry is a key's value and when it expires by the server's clock.
type entry struct {
	value   string
	wrong   bool // not a string: commands for strings fail on it
	queue   *queue
	expires time.Duration
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
	s := &Server{world: w, index: index, name: name, keys: map[string]entry{}, watches: map[string]*watch{}, wall: wall{line: &w.timeline, rate: 1}}
	s.begin(0)
	return s
}

// begin makes it another process.
func (s *Server) begin(run int) { s.run, s.runID = run, fmt.Sprint(s.name, "-run", run) }

func (s *Server) String() string { return s.name }

// SetRate makes the server's clock advance by rate seconds a second from now
// on.
func (s *Server) SetRate(rate float64) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.wall.at, s.wall.since, s.wall.rate = s.wall.now(), s.wall.line.now(), rate
	s.awaitAll()
}

// Hang stops the server as SIGSTOP does: it receives, and does nothing.
func (s *Server) Hang() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.hung = true
}

// Resume lets a hung server go on: it runs what it has received meanwhile.
func (s *Server) Resume() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.hung = false
	for _, c := range s.queue {
		s.serve(c)
	}
	s.queue = nil
	s.awaitAll()
}

// Crash ends the server's process. Requests that it had not run are lost, and
// their clients told so (Unknown). Until Restart new connections are refused.
func (s *Server) Crash() { s.crash(false) }

// Vanish is a Crash of the whole machine: nobody is there even to refuse a
// connection, so that requests wait for one until their time is out.
func (s *Server) Vanish() { s.crash(true) }

func (s *Server) crash(deaf bool) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.down, s.deaf, s.hung = true, deaf, false
	s.begin(s.run + 1)
	for _, c := range s.queue {
		c.broken()
	}
	s.queue = nil
	s.unwatched()
}

// Restart starts the server again with all its keys, as after a restart with
// appendfsync always. One that has forgotten some is a Load or a Flush before
// that.
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
	for key, e := range s.keys { // not by lookup: that the test looks is told to nobody
		if !s.expired(e) {
			living[key] = e.value
		}
	}
	return living
}

// Locks is Keys without the keys that are the library's own, which stay.
func (s *Server) Locks() map[string]string {
	keys := s.Keys()
	maps.DeleteFunc(keys, func(key, _ string) bool { return strings.Contains(key, "redlock:") })
	return keys
}

// Set sets a key behind the clients' backs, for ttl or, if that is
// redlock.NoTTL, for ever.
func (s *Server) Set(key, value string, ttl time.Duration) { s.put(key, entry{value: value}, ttl) }

// SetWrongType makes key hold something that is not a string, for ever.
func (s *Server) SetWrongType(key string) { s.put(key, entry{wrong: true}, redlock.NoTTL) }

func (s *Server) put(key string, e entry, ttl time.Duration) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	e.expires = never
	if ttl != redlock.NoTTL {
		e.expires = s.wall.now() + ttl
	}
	s.write(key, e)
}

// Del deletes a key behind the clients' backs.
func (s *Server) Del(key string) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.remove(key)
}

// Mute makes the server keep its run id to itself, as one whose ACL forbids INFO.
func (s *Server) Mute() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.mute = true
}

// Step sets the server's clock ahead by d, or back if d is below zero.
func (s *Server) Step(d time.Duration) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.wall.at += d
	s.awaitAll()
}

// arrive takes a request off the network.
func (s *Server) arrive(c *call) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	switch {
	case s.down || c.run != s.run:
		c.broken()
	case s.hung:
		s.queue = append(s.queue, c)
	default:
		s.serve(c)
	}
}

func (s *Server) serve(c *call) {
	if !c.stray {
		s.current = c.link
	}
	reply := s.apply(&c.req)
	s.current = nil
	if c.watches && c.link.able() {
		s.remember(c.req.Key, c.link)
	}
	s.world.tell(c, Run, reply.Outcome)
	c.answer(reply)
}

// apply runs one request, as Redis runs the commands that stand for it.
func (s *Server) apply(req *redlock.Request) redlock.Reply {
	reply := s.obey(req)
	if !s.mute {
		reply.Run = s.runID
	}
	if record, ok := s.lookup(req.Epoch); ok && req.Epoch != "" {
		reply.Life = s.left(record)
	}
	return reply
}

func (s *Server) obey(req *redlock.Request) redlock.Reply {
	switch req.Op {
	case redlock.OpWatch:
		return s.look(req)
	case redlock.OpQueue:
		return s.stand(req)
	}
	e, exists := s.lookup(req.Key)
	if exists && e.wrong && req.Op != redlock.OpAcquire && req.Op != redlock.OpAcquireFenced { // SET NX looks at no type
		return redlock.Reply{Outcome: redlock.Failed, Err: redlock.ErrWrongType}
	}
	ours := exists && e.value == req.Value
	switch {
	case req.Op == redlock.OpAdmit:
		return s.admit(req)
	case req.Counter != "":
		return s.fenced(req)
	case req.Op == redlock.OpInspect:
		return redlock.Reply{Outcome: redlock.Granted, Value: e.value, TTL: s.left(e)}
	case req.Op == redlock.OpAcquire && exists: // SET NX tells nothing of what is there
		return redlock.Reply{Outcome: redlock.Refused}
	case req.Op != redlock.OpAcquire && !ours:
		return redlock.Reply{Outcome: redlock.Refused, TTL: s.left(e)}
	case req.Op == redlock.OpRelease:
		s.remove(req.Key)
	default:
		s.write(req.Key, entry{value: req.Value, expires: s.wall.now() + req.TTL})
	}
	return redlock.Reply{Outcome: redlock.Granted}
}

// left is a key's remaining TTL: whole milliseconds, as PTTL tells it, but at
// least one while the key lives.
func (s *Server) left(e entry) time.Duration {
	switch e.expires {
	case 0:
		return 0
	case never:
		return redlock.NoTTL
	}
	return max(time.Millisecond, (e.expires - s.wall.now()).Truncate(time.Millisecond))
}
