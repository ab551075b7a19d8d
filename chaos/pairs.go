package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// pairs are the servers of nodes that have a standby each: server i, and server n+i of 2n. They
// implement nemesis.Standbys, as Sentinel fails over, but for the time in which both are primaries.
type pairs struct {
	trial *trial

	mu      sync.Mutex
	primary []int // of each node: the server that was promoted last
}

// pair makes the second half of the servers replicas of the first.
func (t *trial) pair(ctx context.Context) (*pairs, error) {
	p := &pairs{trial: t}
	for i := range t.nodes {
		p.primary = append(p.primary, i)
		for _, server := range []int{i, t.nodes + i} {
			if _, err := t.askServer(ctx, server, "CONFIG", "SET", "repl-diskless-sync-delay", 0); err != nil {
				return nil, err
			}
		}
		if err := p.Demote(ctx, i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// with returns the URLs with each node's standby.
func (p *pairs) with(urls []string) (all []string) {
	for i, url := range urls {
		all = append(all, url+"?standby="+addr(p.trial.fleet.URLs()[len(urls)+i]))
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
	_, standby := p.of(node)
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
	if _, err := p.trial.askServer(ctx, other, "CLIENT", "KILL", "TYPE", "normal"); err != nil {
		return err
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
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("server %d does not become a replica: %w", other, ctx.Err())
		}
	}
}
