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

// A node has one vote, so it must be one server. Its name may have several addresses, as localhost
// has, and so may a load balancer: they must lead to one server. The name of a headless service of
// Kubernetes leads to a server per address. Two clients could then lock the same name, one on each.
//
// So a connection to a name with several addresses is preceded by a look at all of them, and the name
// of an open connection is looked up again every few seconds (see resolver). A dial function, or a
// balancer with one address, cannot be looked behind. There the node notices when it has come back to a
// server that it had left: a process that has ended does not come back, and a server that was promoted
// again has another data set.

// errSeveral is for a node that leads to several servers.
var errSeveral = errors.New("leads to several servers, and each of them could grant the same lock: " +
	"use an address of one server for each node")

// errAbsent is for an address without a server. A dial function of the caller that cannot reach an address
// does not mean that.
var errAbsent = errors.New("no server listens")

// dialAll connects to the one server at all of the addresses. A refused address has no server if the name
// has no other address of its kind: the server then listens on IPv4 or on IPv6 alone. Else it may be the
// address of another server, which is restarting.
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
		is.Primary = "" // so that none is confirmed, and all are waited for
		return is, nil, err
	})
	chosen, err := all.choose(greetings)
	g := keep(greetings, chosen, err)
	if err == nil {
		t.names.watch(g.Conn, addresses[chosen], addresses)
	}
	return g.Conn, g.Err
}

// isOnlyOfItsKind reports whether no other address is IPv4, or IPv6, as this one is.
func isOnlyOfItsKind(address string, addresses []string) bool {
	isSix := func(a string) bool { return strings.HasPrefix(a, "[") }
	return !slices.ContainsFunc(addresses, func(a string) bool { return a != address && isSix(a) == isSix(address) })
}

// isNobodyThere reports whether no server listens at an address, or this machine has no network of its kind,
// as IPv6. Any other failure, such as a host that cannot be reached, may hide a server that others reach.
func isNobodyThere(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{
		syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT,
		10061, 10051, 10049, 10047, // the same on Windows
	}, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// choose returns the greeting whose connection is to be used: all lead to its server. It is -1 with an
// error.
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
