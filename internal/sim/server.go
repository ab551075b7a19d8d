package sim

import (
	"maps"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A Server is a fake Redis server.
type Server struct {
	store
	world *World

	down    bool // no process runs
	deaf    bool // while down: a connection attempt is not refused, but hangs
	hung    bool
	denies  bool
	links   []*link
	held    []*call // received while hung
	cycling bool    // the server will look for expired keys
}

func (s *Server) String() string { return s.name }

// locked calls do with the World locked, and sends the resulting hints.
func (s *Server) locked(do func()) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.moment = s.world.timeline.now()
	do()
	for _, h := range s.hints {
		s.hint(s.links[h.Client], h.Key)
	}
	s.hints = s.hints[:0]
	s.await()
}

// SetRate calls the method of the store, as do the similar methods.
func (s *Server) SetRate(rate float64) { s.locked(func() { s.store.SetRate(rate) }) }

// Step sets the clock ahead by d, or back if d is below zero.
func (s *Server) Step(d time.Duration) { s.locked(func() { s.store.Step(d) }) }

// Settle gives the server the record of one that has long been in use.
func (s *Server) Settle(nodes int, longest time.Duration) {
	s.locked(func() { s.store.Settle(nodes, longest) })
}

// Hang stops the server as SIGSTOP does: it receives requests, but does not run them.
func (s *Server) Hang() { s.locked(func() { s.hung = true }) }

// Resume continues a hung server, which runs the requests that it has received in the meantime.
func (s *Server) Resume() {
	s.locked(func() {
		held := s.held
		s.hung, s.held = false, nil
		for _, c := range held {
			s.receive(c)
		}
	})
}

// Deny makes the server reject all requests permanently, as if the user lacked a right, or ends
// this.
func (s *Server) Deny(on bool) { s.locked(func() { s.denies = on }) }

// Crash ends the server's process. Requests that it had not run are lost, and their clients get
// Unknown. New connections are refused until Restart.
func (s *Server) Crash() { s.crash(false) }

// Vanish is a Crash of the whole machine: connections are not even refused, so requests wait for a
// connection until they time out.
func (s *Server) Vanish() { s.crash(true) }

func (s *Server) crash(deaf bool) {
	s.locked(func() {
		s.down, s.deaf, s.hung = true, deaf, false
		s.run++
		for _, c := range s.held {
			c.broken()
		}
		s.held, s.tracked = nil, nil
	})
}

// Restart starts the server again with all its keys, as after a restart with
// appendfsync always. A Flush before it makes it forget them.
func (s *Server) Restart() {
	s.locked(func() {
		s.down, s.deaf = false, false
		for _, l := range s.links {
			s.world.timeline.after(0, func() { l.client.do(l.connected) })
		}
	})
}

// Flush makes the server forget all keys, as FLUSHALL does. After a Crash, it simulates a restart
// without persistence.
func (s *Server) Flush() { s.locked(func() { clear(s.keys); s.flushed() }) }

// Keys returns the living keys and their values.
func (s *Server) Keys() map[string]string {
	all := map[string]string{}
	s.locked(func() { s.living(func(key string, e entry) { all[key] = e.text() }) })
	return all
}

// Locks returns the keys without the library's own keys, which stay.
func (s *Server) Locks() map[string]string {
	all := s.Keys()
	maps.DeleteFunc(all, func(key, _ string) bool { return own(key) })
	return all
}

// Set sets a key without a client's request, for ttl, or without expiry if ttl is protocol.NoTTL.
func (s *Server) Set(key, value string, ttl time.Duration) {
	s.locked(func() { s.store.Set(key, value, ttl) })
}

// SetWrongType makes key hold a value that is not a string, without expiry.
func (s *Server) SetWrongType(key string) {
	s.locked(func() { s.put(key, entry{wrong: true}, protocol.NoTTL) })
}

// SetCounter makes key a counter of fencing tokens, without expiry.
func (s *Server) SetCounter(key string, score float64) {
	s.locked(func() { s.store.SetCounter(key, score) })
}

// Del deletes a key without a client's request.
func (s *Server) Del(key string) { s.locked(func() { s.remove(key) }) }

// arrive takes a request off the network. The request is held while the server hangs. If the
// server's process has ended, the connection is broken.
func (s *Server) arrive(c *call) {
	s.locked(func() {
		switch {
		case s.down || c.run != s.run:
			c.broken()
		case s.hung:
			s.held = append(s.held, c)
		default:
			s.receive(c)
		}
	})
}

// receive runs a request, and answers it.
func (s *Server) receive(c *call) {
	reply := protocol.Reply{Outcome: protocol.Failed, Err: errDenied}
	if !s.denies {
		reply = s.serve(c.link.index, &c.req, c.link.tracked())
	}
	s.world.tell(c, Run, reply.Outcome)
	c.answer(reply)
}
