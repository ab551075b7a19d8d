package fault

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/relay"
)

// Nodes are the servers of a run, and what faults happen to.
type Nodes struct {
	fleet  fleet.Fleet
	memory fleet.Memory   // with which a killed node comes back
	relays []*relay.Relay // one a node, or none
	urls   []string       // for clients
}

// Open starts the nodes. Relays in front of them can slow the network down, and cost throughput
// even while they do not: they are for faults that need them only. A client that connects to a dead
// node through a relay is not refused, but accepted and then reset.
func Open(ctx context.Context, kind fleet.Kind, opts fleet.Options, withRelays bool) (*Nodes, error) {
	f, err := fleet.Start(ctx, kind, opts)
	if err != nil {
		return nil, err
	}
	n := &Nodes{fleet: f, urls: f.URLs(), memory: fleet.Kept}
	if opts.Volatile {
		n.memory = fleet.Lost
	}
	if withRelays {
		if err := n.openRelays(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
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
	all, err := endpoint.ParseAll([]string{direct})
	if err != nil {
		return nil, "", err
	}
	u, err := url.Parse(direct)
	if err != nil || u.Scheme != "redis" { // with rediss, clients look for the relay's name in the server's certificate
		return nil, "", fmt.Errorf("%w: %s is for redis:// alone", fleet.ErrUnsupported, Slow)
	}
	if r, err = relay.New(all[0].Addr); err != nil {
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

// Can returns an error if the fault cannot be made, which matches fleet.ErrUnsupported.
func (n *Nodes) Can(ctx context.Context, f Fault) error {
	switch {
	case f.kind == Kill && n.fleet.Kind() == fleet.Addrs:
		return fmt.Errorf("%w: these servers cannot be killed, because they were not started by the benchmark", fleet.ErrUnsupported)
	case f.kind == Pause:
		// Asked for by what does nothing to a node that runs.
		if err := n.fleet.Resume(ctx, 0); errors.Is(err, fleet.ErrUnsupported) {
			return err
		}
	case f.kind == Slow && n.relays == nil:
		return fmt.Errorf("%w: these servers cannot be slowed down, because there are no relays in front of them", fleet.ErrUnsupported)
	}
	return nil
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
		return n.fleet.Restart(ctx, node, n.memory)
	case Pause:
		return n.fleet.Resume(ctx, node)
	default:
		n.relays[node].Heal()
		return nil
	}
}
