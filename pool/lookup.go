package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool/internal/link"
)

const (
	// lookEvery is the pause between two look-ups of the name of an open connection.
	lookEvery = 5 * time.Second

	// lookupTimeout bounds a look-up. It is more than resolvers wait for a name server that is down before
	// they ask the next, so it does not end with DialTimeout.
	lookupTimeout = 20 * time.Second
)

var (
	// errMoved is for a connection to a server whose name leads elsewhere now.
	errMoved = errors.New("its name has another address now: " +
		"if that is another server, use a name of one server for each node")

	// errSlowName is for a name that is not known yet.
	errSlowName = errors.New("the name servers have not answered: check resolv.conf")
)

// A resolver looks up the name of a server: for each connection that is made, and every few seconds for
// the one that is open. A client that stays on a server which the name does not show any more, and a
// client that comes later, would both have the node's one vote, on two servers. So the first leaves the
// server.
//
// A vote rests on the last look-up all the same: on one that is lookEvery old, and on an answer that name
// servers may have kept for longer. docs/SAFETY.md says so.
//
// A look-up that fails proves nothing and changes nothing: an outage of name servers ends no lock. A new
// connection then goes to the last known addresses.
type resolver struct {
	host, port string
	lookup     func(ctx context.Context, host string) ([]string, error)
	every      time.Duration

	mu      sync.Mutex
	last    []string // the last addresses; nil: none are known
	running *answer  // the look-up under way; nil: none
}

// An answer is the outcome of a look-up. Its fields are set when done is closed.
type answer struct {
	done      chan struct{}
	addresses []string
	err       error
}

// newResolver returns the resolver of t's name. It is nil for an IP address and a socket, and if a dial
// function of the caller takes the name.
func newResolver(t *target, s *settings) *resolver {
	if s.netDial != nil || t.host == "" || net.ParseIP(t.host) != nil {
		return nil
	}
	_, port, _ := net.SplitHostPort(t.address)
	return &resolver{host: t.host, port: port, lookup: s.lookup, every: s.lookEvery}
}

// look begins a look-up, or returns the one that is under way.
func (r *resolver) look() *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = &answer{done: make(chan struct{})}
		go r.run(r.running)
	}
	return r.running
}

func (r *resolver) run(a *answer) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	hosts, err := r.lookup(ctx, r.host)
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	for i, host := range hosts {
		hosts[i] = net.JoinHostPort(host, r.port)
	}
	if err == nil && len(hosts) == 0 {
		err = errors.New("its name has no address")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.addresses, a.err = hosts, err
	if err == nil {
		r.last = hosts
	}
	r.running = nil
	close(a.done)
}

// addresses returns the addresses for a new connection, with the port. If the look-up fails, or takes half
// of the time that ctx leaves, the last known addresses serve, unless there is no such name any more.
func (r *resolver) addresses(ctx context.Context) ([]string, error) {
	wait := lookupTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = time.Until(end) / 2
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	a := r.look()
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		a = &answer{err: errSlowName}
	}
	var failure *net.DNSError
	if a.err == nil || errors.As(a.err, &failure) && failure.IsNotFound {
		return a.addresses, a.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return nil, a.err
	}
	return r.last, nil
}

// watch has the connection, to one of the addresses that lead to one server, end when the name leads
// elsewhere.
func (r *resolver) watch(c redis.Conn, at string, seen []string) {
	c.(*link.Conn).Stay = func(ctx context.Context) error { return r.await(ctx, at, seen) }
}

// await returns an error when a look-up shows that the name does not lead to the address at any more, or
// leads to an address besides those seen when the connection was made. It returns nil when ctx ends.
func (r *resolver) await(ctx context.Context, at string, seen []string) error {
	t := time.NewTicker(r.every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		a := r.look()
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil
		}
		isNew := func(address string) bool { return !slices.Contains(seen, address) }
		if a.err == nil && (!slices.Contains(a.addresses, at) || slices.ContainsFunc(a.addresses, isNew)) {
			return fmt.Errorf("%w (it was %s)", errMoved, at)
		}
	}
}
