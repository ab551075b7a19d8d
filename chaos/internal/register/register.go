// Package register is the resource that a lock protects: a value for each name, kept by a server
// that takes a write only if its fencing token is not below the highest that it has seen. It
// records every attempt, in the order in which it decided.
package register

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"sync"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// A Server is the register. It listens on a port of this machine, at its Addr.
type Server struct {
	http.Server
	log *history.Log

	mu      sync.Mutex
	highest map[string]int64 // token, by name
}

// Serve starts a register that records in log, until it is closed.
func Serve(log *history.Log) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{log: log, highest: map[string]int64{}}
	s.Addr, s.Handler = l.Addr().String(), http.HandlerFunc(s.take)
	go s.Server.Serve(l)
	return s, nil
}

// take takes a write or not. The record is made under the same lock, so that its order is the
// register's.
func (s *Server) take(_ http.ResponseWriter, request *http.Request) {
	var write history.Event
	if json.NewDecoder(request.Body).Decode(&write) != nil {
		panic(http.ErrAbortHandler) // the writer gets no answer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	write.Kind = history.Refused
	if write.Token >= s.highest[write.Name] {
		s.highest[write.Name] = write.Token
		write.Kind = history.Accepted
	}
	write.At = history.Now()
	s.log.Add(write)
}

// Send gives a write to the register at an address, which takes it or not. The write has the Name
// and the Token that it is with, and Who and Op of the acquisition.
func Send(addr string, write history.Event) error {
	text, err := json.Marshal(write)
	if err != nil {
		return err
	}
	reply, err := http.Post("http://"+addr, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	return reply.Body.Close()
}
