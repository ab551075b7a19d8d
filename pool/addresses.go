package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/redquorum/redquorum/pool/internal/link"
)

// A node has one vote, so it must be one server. Its name may have several addresses, as localhost
// has, and so may a load balancer: they must lead to one server. Those of a headless service of
// Kubernetes lead to a server each. Two clients could then lock the same name, one on each.
//
// So each connection to a name with several addresses is preceded by a look at all of them. A dial
// function, or a balancer with one address, cannot be looked behind. There the node notices when it
// has come back to a server that it had left: a process that has ended does not come back, and one
// that was promoted again has another data set.

// errSeveral is for a node that leads to several servers.
var errSeveral = errors.New("leads to several servers, of which each could grant the same lock; " +
	"give each server a node of its own, by an address that leads to no other")

// resolve returns the addresses of t, with the port: one if it has no name, or if a dial function of the
// caller's takes the name.
func (t *target) resolve(ctx context.Context, s *settings) ([]string, error) {
	if s.netDial != nil || t.host == "" || net.ParseIP(t.host) != nil {
		return []string{t.address}, nil
	}
	hosts, err := s.lookup(ctx, t.host)
	if err != nil {
		return nil, err
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	_, port, err := net.SplitHostPort(t.address)
	for i, host := range hosts {
		hosts[i] = net.JoinHostPort(host, port)
	}
	return hosts, err
}

// An arrival is a connection to one of several addresses, or why there is none.
type arrival struct {
	address string
	conn    *link.Conn
	process string // the server's; empty if it does not tell
	err     error
	absent  bool // no server is there
}

// dialAll connects to the server to which all of the addresses lead. At those that refuse a connection
// there is none.
func (t *target) dialAll(ctx context.Context, s *settings, addresses []string) (*link.Conn, error) {
	arrivals := make([]arrival, len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() { arrivals[i] = t.arrive(ctx, s, address) })
	}
	all.Wait()
	chosen, err := choose(arrivals)
	for i, a := range arrivals {
		if a.conn != nil && (err != nil || i != chosen) {
			a.conn.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	return arrivals[chosen].conn, nil
}

// arrive connects to one of the addresses of t, and asks which server is there.
func (t *target) arrive(ctx context.Context, s *settings, address string) arrival {
	a := arrival{address: address}
	raw, err := new(net.Dialer).DialContext(ctx, t.network, address)
	if err != nil {
		a.err, a.absent = err, isNobodyThere(err)
		return a
	}
	if a.conn, a.err = t.greet(ctx, s, raw); a.err != nil {
		return a
	}
	var is link.Server
	if a.err = link.Ask(ctx, a.conn, is.AskWho()...); a.err != nil {
		return a
	}
	a.process = is.Process()
	return a
}

// isNobodyThere reports whether no server listens at an address, or this machine has no network of its kind,
// as IPv6. Any other failure, such as a host that cannot be reached, may hide a server that others reach.
func isNobodyThere(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{
		syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT,
		10061, 10051, 10049, 10047, // the same on Windows
	}, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// choose returns the arrival whose connection is to be used: all lead to its server.
func choose(arrivals []arrival) (chosen int, err error) {
	chosen = -1
	for i, a := range arrivals {
		switch {
		case a.absent:
			continue
		case a.err != nil:
			return 0, fmt.Errorf("its name has %d addresses, which must lead to one server, and %s: %w",
				len(arrivals), a.address, link.Explain(a.err))
		case chosen < 0:
			chosen = i
		case a.process != arrivals[chosen].process:
			return 0, fmt.Errorf("%w (%s and %s)", errSeveral, arrivals[chosen].address, a.address)
		case a.process == "":
			arrivals[chosen].conn.Doubt = "its name has several addresses, and it does not tell its run_id, " +
				"so several servers there are not noticed: permit INFO, or give an address"
		}
	}
	if chosen < 0 {
		return 0, arrivals[0].err
	}
	return chosen, nil
}
