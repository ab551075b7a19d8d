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

	// lookupTimeout limits a look-up. It exceeds the time for which resolvers wait for a dead name
	// server before they ask the next one, so it is longer than DialTimeout.
	lookupTimeout = 20 * time.Second
)

var (
	// errMoved is the error of a connection to a server whose name now leads elsewhere.
	errMoved = errors.New("its name has another address now: " +
		"if that is another server, use a name of one server for each node")

	// errSlowName is the error for a name that has not been resolved yet.
	errSlowName = errors.New("the name servers have not answered: check resolv.conf")
)

// A resolver looks up the name of a server: for each new connection, and every few seconds for the
// open one. If the name no longer leads to a server, the client leaves that server. Otherwise a
// later client could use the node's vote on another server at the same time.
//
// A vote still relies on the last look-up, which may be lookEvery old, and on an answer that name
// servers may have cached for longer. docs/SAFETY.md describes this.
//
// A failed look-up proves nothing and changes nothing: an outage of name servers ends no lock. A
// new connection then uses the last known addresses.
type resolver struct {
	host, port string
	lookup     func(ctx context.Context, host string) ([]string, error)
	every      time.Duration

	mu      sync.Mutex
	last    []string // nil if no addresses are known
	running *answer  // current look-up; nil without one
}

// An answer is the outcome of a look-up. Its fields are set when done is closed.
type answer struct {
	done      chan struct{}
	addresses []string
	err       error
}

// look starts a look-up, or returns the current one.
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

// addresses returns the addresses for a new connection, with the port. If the look-up fails, or
// takes half of the time that ctx leaves, it returns the last known addresses, unless the name no
// longer exists.
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

// watch ends the connection when the name resolves to another server. at is the address of the
// connection; several addresses may lead to the same server.
func (r *resolver) watch(c redis.Conn, at string, seen []string) {
	c.(*link.Conn).Stay = func(ctx context.Context) error { return r.await(ctx, at, seen) }
}

// await returns an error when a look-up shows that the name no longer leads to the address at, or
// leads to an address other than those seen when the connection was made. It returns nil when ctx
// ends.
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
