// Package register is the resource that a lock protects: a value for each name, kept by a server
// that takes a write only if its fencing token is not below the highest that it has seen. It
// records every attempt, in the order in which it decided.
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
	Addr string // where clients find it
	log  *history.Log
	http http.Server

	mu      sync.Mutex
	highest map[string]int64 // token, by name
}

// Serve starts a register that records in log.
func Serve(log *history.Log) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: l.Addr().String(), log: log, highest: map[string]int64{}}
	s.http.Handler = http.HandlerFunc(s.take)
	go s.http.Serve(l) // ends with Close
	return s, nil
}

// Close breaks all connections. It may be called twice.
func (s *Server) Close() { s.http.Close() }

// take takes a write or not. The record is made under the same lock, so that its order is the
// register's.
func (s *Server) take(reply http.ResponseWriter, request *http.Request) {
	var w Write
	if err := json.NewDecoder(request.Body).Decode(&w); err != nil {
		http.Error(reply, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := history.Refused
	if w.Token >= s.highest[w.Name] {
		s.highest[w.Name] = w.Token
		kind = history.Accepted
	}
	s.log.Add(history.Event{At: history.Now(), Kind: kind, Who: w.Who, Op: w.Op, Name: w.Name, Token: w.Token})
}

// Send gives a write to the register at an address, which takes it or not.
func Send(addr string, w Write) error {
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	reply, err := http.Post("http://"+addr, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("register: %s", reply.Status)
	}
	return nil
}
