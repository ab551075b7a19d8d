package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/relay"
)

// Nodes are the servers of a run, and what faults happen to.
type Nodes struct {
	fleet  fleet.Fleet
	writes func(node int) bool // to disk, so that it can remember
	relays []*relay.Relay      // one a node, or none
	urls   []string            // for clients
}

// Open starts the nodes. Relays in front of them can slow the network down, and cost throughput
// even while they do not: they are for plans that need them only. A client that connects to a dead
// node through a relay is not refused, but accepted and then reset.
func Open(ctx context.Context, kind fleet.Kind, opts fleet.Options, withRelays bool) (*Nodes, error) {
	f, err := fleet.Start(ctx, kind, opts)
	if err != nil {
		return nil, err
	}
	n := Of(f)
	n.writes = func(i int) bool {
		return !opts.Volatile && (opts.Persistence == nil || opts.Persistence[i] != fleet.None)
	}
	if withRelays {
		if err := n.openRelays(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// Of are the nodes of a fleet that write to disk, without relays.
func Of(f fleet.Fleet) *Nodes {
	return &Nodes{fleet: f, urls: f.URLs(), writes: func(int) bool { return true }}
}

func (n *Nodes) openRelays() error {
	for i, direct := range n.urls {
		r, through, err := relayTo(direct)
		if err != nil {
			return fmt.Errorf("fault: node %d: %w", i+1, err)
		}
		n.relays = append(n.relays, r)
		n.urls[i] = through
	}
	return nil
}

// relayTo starts a relay and puts its address into the server's URL. Errors do not show the URL,
// which may hold a password.
func relayTo(direct string) (r *relay.Relay, through string, err error) {
	u, err := url.Parse(direct)
	if err != nil {
		return nil, "", errors.New("its URL cannot be parsed")
	}
	switch u.Scheme {
	case "redis":
	case "rediss":
		return nil, "", fmt.Errorf("%s does not work with rediss://: clients would look for the relay's name in the server's certificate; use redis:// or other faults", Slow)
	default:
		return nil, "", fmt.Errorf("%s does not work with %s://: only TCP can be slowed down; use redis:// or other faults", Slow, u.Scheme)
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "6379"
	}
	if r, err = relay.New(net.JoinHostPort(host, port)); err != nil {
		return nil, "", fmt.Errorf("start a relay: %w", err)
	}
	u.Host = strings.TrimPrefix(r.URL(), "redis://")
	return r, u.String(), nil
}

// URLs are the nodes' for the libraries under measurement. They may hold passwords: do not print
// them.
func (n *Nodes) URLs() []string { return slices.Clone(n.urls) }

// Direct are the nodes' own URLs, without relays. They may hold passwords too.
func (n *Nodes) Direct() []string { return n.fleet.URLs() }

// Close ends what Open has started. It may be called twice.
func (n *Nodes) Close() error {
	for _, r := range n.relays {
		r.Close()
	}
	return n.fleet.Close()
}

// Can matches fleet.ErrUnsupported where the kind of nodes is the reason.
func (n *Nodes) Can(ctx context.Context, f Fault) error {
	switch f.kind {
	case Kill:
		if n.fleet.Kind() == fleet.Addrs {
			return fmt.Errorf("%w: kind %s cannot %s: the servers were not started by the benchmark", fleet.ErrUnsupported, fleet.Addrs, Kill)
		}
		for i := range n.urls {
			if f.remembering && !n.writes(i) {
				return fmt.Errorf("%w: node %d writes nothing to disk, so it cannot come back remembering; leave the word out, or let nodes be durable",
					fleet.ErrUnsupported, i+1)
			}
		}
	case Pause:
		// Asked for by what does nothing to a node that runs.
		if err := n.fleet.Resume(ctx, 0); errors.Is(err, fleet.ErrUnsupported) {
			return err
		}
	case Slow:
		if n.relays == nil {
			return errors.New("there are no relays in front of the nodes that could slow them down")
		}
	}
	return nil
}

// Find asks nodes that elect a leader who it is. Of others the first node counts as the leader.
func (n *Nodes) Find(ctx context.Context, role string) (node int, err error) {
	if elects, ok := n.fleet.(interface {
		Leader(context.Context) (int, error)
	}); ok {
		if node, err = elects.Leader(ctx); err != nil {
			return 0, fmt.Errorf("find the leader: %w", err)
		}
	}
	if role == Follower {
		node = (node + 1) % len(n.urls)
	}
	return node, nil
}

// Break makes the fault on one node.
func (n *Nodes) Break(ctx context.Context, f Fault, node int) error {
	switch f.kind {
	case Kill:
		return n.fleet.Kill(ctx, node)
	case Pause:
		return n.fleet.Pause(ctx, node)
	default:
		late := relay.Fault{Mode: relay.Delay, By: f.by}
		n.relays[node].Break(relay.Requests, late)
		n.relays[node].Break(relay.Replies, late)
		return nil
	}
}

// Mend ends it.
func (n *Nodes) Mend(ctx context.Context, f Fault, node int) error {
	switch f.kind {
	case Kill:
		memory := fleet.Lost
		if n.writes(node) {
			memory = fleet.Kept // its own configuration; with "remembering", Can has seen to it
		}
		return n.fleet.Restart(ctx, node, memory)
	case Pause:
		return n.fleet.Resume(ctx, node)
	default:
		n.relays[node].Heal()
		return nil
	}
}
