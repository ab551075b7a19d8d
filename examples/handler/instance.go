package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/redlock"
)

// An instance is one of the shop's HTTP servers, on a machine of its own.
type instance struct {
	name   string
	wires  *servers.Wires
	locker *redlock.Locker
	server *http.Server
	url    string
	served chan struct{} // closed when Serve has returned
}

// start opens an instance for customers when it can get locks: new servers have
// no vote for a TTL, and requests would have to be refused.
func (s *shop) start(ctx context.Context, name string, urls []string, more []redlock.Option) (*instance, error) {
	in := &instance{name: name, served: make(chan struct{})}
	s.instances = append(s.instances, in) // also if only a part of it starts
	var err error
	if in.wires, err = servers.NewWires(urls); err != nil {
		return nil, err
	}
	if in.locker, err = open(in.wires.URLs(), s, more...); err != nil {
		return nil, err
	}
	nothing := func(context.Context) error { return nil }
	if err := in.locker.Do(ctx, "ready:"+name, nothing, redlock.Fenced()); err != nil {
		return nil, err
	}
	cashier := &Cashier{Locker: in.locker, Ledger: &s.ledger, Charge: s.charge, Lost: s.tellLost}
	handler, err := cashier.Handler()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	in.url = "http://" + listener.Addr().String()
	in.server = &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(in.served)
		in.server.Serve(listener) // ends with stop, and its error says no more
	}()
	return in, nil
}

// stop ends the instance: the server first, for its handlers need the Locker.
func (in *instance) stop() {
	if in.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if in.server.Shutdown(ctx) != nil {
			in.server.Close()
		}
		<-in.served
	}
	if in.locker != nil {
		in.locker.Close()
	}
	if in.wires != nil {
		in.wires.Close()
	}
}
