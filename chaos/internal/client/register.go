package client

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"net/http"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/fence"
)

// noToken is the token of writes under locks without tokens. It is below all others, so a program
// without tokens may write until a write with a token arrives.
const noToken = 1

// ServeRegister starts the resource that locks protect, on a port of this machine: a value for each
// name, protected by a fence.Gate. It writes its decisions to log, in their order.
func ServeRegister(log *history.Log) (*http.Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var gate fence.Gate
	s := &http.Server{Addr: l.Addr().String(), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var write history.Event
		if json.NewDecoder(r.Body).Decode(&write) != nil {
			panic(http.ErrAbortHandler) // the writer gets no answer
		}
		note := func(kind history.Kind) error {
			write.Kind, write.At = kind, history.Now()
			return log.Add(write)
		}
		err := gate.Do(write.Name, cmp.Or(write.Token, noToken), func() error { return note(history.Accepted) })
		if errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrToken) {
			note(history.Refused)
		}
	})}
	go s.Serve(l)
	return s, nil
}

// sendWrite sends a write to the register, which accepts or refuses it. The write has a Name, a
// Token, and the Who and Op of the acquisition.
func sendWrite(register string, write history.Event) error {
	text, err := json.Marshal(write)
	if err != nil {
		return err
	}
	reply, err := http.Post("http://"+register, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	return reply.Body.Close()
}
