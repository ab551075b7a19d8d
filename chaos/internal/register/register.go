// Package register is the resource that a lock protects: a value for each name, kept by a server
// that takes a write only if its fencing token is not below the highest that it has seen. It
// records every attempt, in the order in which it decided.
//
// A lock alone cannot do this. A client that is paused after it has looked at its lock writes when
// the lock is another's; only the resource can tell.
package register

import (
	"encoding/json"
	"net"
	"sync"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// A write is a request, and answer the reply to it: one line of JSON each.
type write struct {
	Name  string `json:"name"`
	Token int64  `json:"token"`
	Who   int    `json:"who"`
	Op    int64  `json:"op"`
}

type answer struct {
	Accepted bool `json:"accepted"`
}

// A Server is the register. It listens on a port of this machine.
type Server struct {
	log      *history.Log
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	highest map[string]int64 // token, by name
	conns   map[net.Conn]bool
	closed  bool
}

// Serve starts a register that records in log.
func Serve(log *history.Log) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{log: log, listener: l, highest: map[string]int64{}, conns: map[net.Conn]bool{}}
	s.running.Go(s.accept)
	return s, nil
}

// Addr is where clients find it.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close breaks all connections. It may be called twice.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		if s.closed {
			c.Close()
		}
		s.mu.Unlock()
		s.running.Go(func() {
			s.serve(c)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
		})
	}
}

func (s *Server) serve(c net.Conn) {
	defer c.Close()
	in, out := json.NewDecoder(c), json.NewEncoder(c)
	for {
		var w write
		if in.Decode(&w) != nil {
			return
		}
		if out.Encode(answer{s.decide(w)}) != nil {
			return
		}
	}
}

// decide takes the write or not. The record is made under the same lock, so that its order is the
// register's.
func (s *Server) decide(w write) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := history.Refused
	if w.Token >= s.highest[w.Name] {
		s.highest[w.Name] = w.Token
		kind = history.Accepted
	}
	s.log.Add(history.Event{At: history.Now(), Kind: kind, Who: w.Who, Op: w.Op, Name: w.Name,
		Token: w.Token})
	return kind == history.Accepted
}

// A Client writes to a register. It is safe for concurrent use.
type Client struct {
	mu   sync.Mutex
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// Dial connects to the register at an address.
func Dial(addr string) (*Client, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Client{conn: c, in: json.NewDecoder(c), out: json.NewEncoder(c)}, nil
}

// Write reports whether the register took the write that client who makes under the lock of its
// acquisition op.
func (c *Client) Write(name string, token int64, who int, op int64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(write{name, token, who, op}); err != nil {
		return false, err
	}
	var a answer
	err := c.in.Decode(&a)
	return a.Accepted, err
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
