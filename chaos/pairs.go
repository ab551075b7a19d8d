package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/relay"
)

// pairs are the servers of nodes that have a standby each: server i, and server n+i of 2n. They
// implement nemesis.Standbys. A failover is what Sentinel makes of a primary that it cannot reach,
// nor can some of the clients.
type pairs struct {
	trial  *trial
	relays []*relay.Relay // one a server, for those clients

	mu      sync.Mutex
	primary []int // of each node: the server that was promoted last
}

// pair makes the second half of the servers replicas of the first.
func (t *trial) pair(ctx context.Context) (_ *pairs, err error) {
	p := &pairs{trial: t}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for i, url := range t.fleet.URLs() {
		r, err := relay.New(addr(url))
		if err != nil {
			return nil, err
		}
		p.relays = append(p.relays, r)
		if _, err := t.askServer(ctx, i, "CONFIG", "SET", "repl-diskless-sync-delay", 0); err != nil {
			return nil, err
		}
	}
	for i := range t.nodes {
		p.primary = append(p.primary, i)
		if err := p.Demote(ctx, i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pairs) close() {
	for _, r := range p.relays {
		r.Close()
	}
}

func (p *pairs) relayed() (urls []string) {
	for _, r := range p.relays {
		urls = append(urls, r.URL())
	}
	return urls
}

// withStandbys returns the URLs of the first half, each with one of the second as its standby.
func withStandbys(urls []string) (all []string) {
	n := len(urls) / 2
	for i, url := range urls[:n] {
		all = append(all, url+"?standby="+addr(urls[n+i]))
	}
	return all
}

// of returns the primary of a node, and its other server.
func (p *pairs) of(node int) (primary, other int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	primary = p.primary[node]
	return primary, node + p.trial.nodes - (primary - node)
}

func (p *pairs) Promote(ctx context.Context, node int) error {
	primary, standby := p.of(node)
	for _, way := range []relay.Direction{relay.Requests, relay.Replies} {
		p.relays[primary].Break(way, relay.Fault{Mode: relay.Drop})
	}
	if _, err := p.trial.askServer(ctx, standby, "REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.primary[node] = standby
	return nil
}

// Demote has the other server take over the primary's data, and waits until it has.
func (p *pairs) Demote(ctx context.Context, node int) error {
	primary, other := p.of(node)
	host, port, err := net.SplitHostPort(addr(p.trial.fleet.URLs()[primary]))
	if err != nil {
		return err
	}
	if _, err := p.trial.askServer(ctx, other, "REPLICAOF", host, port); err != nil {
		return err
	}
	if node%2 == 0 { // as Sentinel does; connections of the others outlive what their server was
		if _, err := p.trial.askServer(ctx, other, "CLIENT", "KILL", "TYPE", "normal"); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		role, err := redis.Values(p.trial.askServer(ctx, other, "ROLE"))
		if err != nil {
			return err
		}
		if state, _ := redis.String(role[len(role)-2], nil); state == "connected" {
			p.relays[other].Heal()
			p.relays[other].Reset()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("server %d does not become a replica: %w", other, ctx.Err())
		}
	}
}
