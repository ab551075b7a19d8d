package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool/internal/link"
)

// A node has one vote, so it must be one server. Its name may have several addresses, like
// localhost, and so may a load balancer; all of them must lead to one server. The name of a
// headless service of Kubernetes leads to one server per address. Two clients could then lock the
// same name, one on each server.
//
// Before a connection to a name with several addresses, the node therefore contacts all of them,
// and it looks up the name of an open connection again every few seconds (see resolver). The node
// cannot see the servers behind a dial function, or behind a balancer with one address. In these
// cases the node notices its return to a server that it had left: a process that has ended does not
// return, and a server that was promoted again has another data set.

// errSeveral is the error of a node that leads to several servers.
var errSeveral = errors.New("leads to several servers, and each of them could grant the same lock: " +
	"use an address of one server for each node")

// errAbsent is the error for an address without a server. If a dial function of the caller cannot
// reach an address, that does not prove that there is no server.
var errAbsent = errors.New("no server listens")

// dialAll connects to the single server at all of the addresses. A refused address has no server if
// the name has no other address of its kind, because the server then listens only on IPv4 or only
// on IPv6. Otherwise it may be the address of another server, which is restarting.
func (t *target) dialAll(ctx context.Context, s *settings, addresses []string) (redis.Conn, error) {
	all := make(members, len(addresses))
	for i, address := range addresses {
		all[i] = member{name: address, dial: func(ctx context.Context) (redis.Conn, error) {
			raw, err := new(net.Dialer).DialContext(ctx, t.network, address)
			if isNobodyThere(err) && isOnlyOfItsKind(address, addresses) {
				return nil, fmt.Errorf("%w: %w", errAbsent, link.AtDial("dial", err))
			}
			if err != nil {
				return nil, link.AtDial("dial", err)
			}
			return t.greet(ctx, s, raw)
		}}
	}
	greetings := all.greet(ctx, func(ctx context.Context, c redis.Conn) (is link.Server, _ []string, err error) {
		err = link.Ask(ctx, c, is.AskWho()...)
		is.Primary = "" // then no server is confirmed, and the node contacts all of them
		return is, nil, err
	})
	chosen, err := all.choose(greetings)
	g := closeOthers(greetings, chosen, err)
	if err == nil {
		t.names.watch(g.Conn, addresses[chosen], addresses)
	}
	return g.Conn, g.Err
}

// isOnlyOfItsKind reports whether all other addresses have the other IP version.
func isOnlyOfItsKind(address string, addresses []string) bool {
	isSix := func(a string) bool { return strings.HasPrefix(a, "[") }
	return !slices.ContainsFunc(addresses, func(a string) bool { return a != address && isSix(a) == isSix(address) })
}

// isNobodyThere reports whether the error proves that no server listens at an address, or that this
// machine has no network for it, such as IPv6. Any other failure, such as an unreachable host, may
// hide a server that other clients reach.
func isNobodyThere(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{
		syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT,
		10061, 10051, 10049, 10047, // the same on Windows
	}, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// choose returns the index of the greeting whose connection to use. It returns -1 with an error
// unless all greetings are from one server.
func (m members) choose(greetings []link.Greeting) (chosen int, err error) {
	chosen = -1
	for i, g := range greetings {
		switch {
		case errors.Is(g.Err, errAbsent):
			continue
		case g.Err != nil:
			return -1, fmt.Errorf("its name has %d addresses, which must lead to one server, and %s: %w",
				len(m), m[i].name, link.Explain(g.Err))
		case chosen < 0:
			chosen = i
		case g.Server.Process() != greetings[chosen].Server.Process():
			return -1, fmt.Errorf("%w (%s and %s)", errSeveral, m[chosen].name, m[i].name)
		case g.Server.Process() == "":
			greetings[chosen].Conn.(*link.Conn).Doubt = "its name has several addresses, and it hides its run_id, " +
				"so several servers there are not noticed: permit INFO, or use an IP address"
		}
	}
	if chosen < 0 {
		return -1, greetings[0].Err
	}
	return chosen, nil
}
