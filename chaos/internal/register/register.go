// Package register is the resource that a lock protects: a value for each name, kept by a server
// that takes a write only if its fencing token is not below the highest that it has seen. It
// records every attempt, in the order in which it decided.
//
// A lock alone cannot do this. A client that is paused after it has looked at its lock writes when
// the lock is another's; only the resource can tell.
package register

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// A Write is what a client asks for: to write to a name, with the token of its acquisition Op.
type Write struct {
	Name  string
	Token int64
	Who   int
	Op    int64
}

// A Server is the register. It listens on a port of this machine.
type Server struct {
	log  *history.Log
	http http.Server
	addr string

	mu      sync.Mutex
	highest map[string]int64 // token, by name
}

// Serve starts a register that records in log.
func Serve(log *history.Log) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{log: log, addr: l.Addr().String(), highest: map[string]int64{}}
	s.http.Handler = http.HandlerFunc(s.answer)
	go s.http.Serve(l) // ends with Close
	return s, nil
}

// Addr is where clients find it.
func (s *Server) Addr() string { return s.addr }

// Close breaks all connections. It may be called twice.
func (s *Server) Close() { s.http.Close() }

func (s *Server) answer(reply http.ResponseWriter, request *http.Request) {
	var w Write
	switch {
	case json.NewDecoder(request.Body).Decode(&w) != nil:
		reply.WriteHeader(http.StatusBadRequest)
	case !s.takes(w):
		reply.WriteHeader(http.StatusConflict)
	}
}

// takes takes the write or not. The record is made under the same lock, so that its order is the
// register's.
func (s *Server) takes(w Write) bool {
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

// Send reports whether the register at an address took the write.
func Send(addr string, w Write) (bool, error) {
	text, err := json.Marshal(w)
	if err != nil {
		return false, err
	}
	reply, err := http.Post("http://"+addr, "application/json", bytes.NewReader(text))
	if err != nil {
		return false, err
	}
	reply.Body.Close()
	switch reply.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusConflict:
		return false, nil
	}
	return false, fmt.Errorf("register: %s", reply.Status)
}
