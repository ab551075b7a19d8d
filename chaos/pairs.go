package main

import (
	"context"
	"fmt"
	"net"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/fleet/relay"
)

// A node with a standby or a copy is a pair of servers: server i, and server n+i of 2n. The
// failover is the one that Sentinel would make if neither Sentinel nor the clients behind relays
// could reach a primary.

// pair makes the second half of the servers replicas of the first.
func (t *trial) pair(ctx context.Context) error {
	for i := range t.relays {
		if _, err := t.askServer(ctx, i, "CONFIG", "SET", "repl-diskless-sync-delay", 0, "hz", 100); err != nil {
			return err
		}
	}
	for i := range t.nodes {
		if err := t.demote(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// withStandbys returns the URLs of the first half, each with a server of the second half as its
// standby.
func withStandbys(urls []string) (all []string) {
	n := len(urls) / 2
	for i, url := range urls[:n] {
		all = append(all, url+"?standby="+addr(urls[n+i]))
	}
	return all
}

// serversOf returns the primary of a node, and its other server.
func (t *trial) serversOf(node int) (primary, other int) {
	if t.promoted[node] {
		return t.nodes + node, node
	}
	return node, t.nodes + node
}

// promote promotes the standby of a node. The old primary continues for some clients.
func (t *trial) promote(ctx context.Context, node int) error {
	primary, standby := t.serversOf(node)
	for _, way := range []relay.Direction{relay.Requests, relay.Replies} {
		t.relays[primary].Break(way, relay.Fault{Mode: relay.Drop})
	}
	if _, err := t.askServer(ctx, standby, "REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	t.promoted[node] = !t.promoted[node]
	return nil
}

// demote makes the other server replicate the primary, and waits until it has the data.
func (t *trial) demote(ctx context.Context, node int) error {
	primary, other := t.serversOf(node)
	if err := t.follow(ctx, other, primary); err != nil {
		return err
	}
	if node%2 == 0 { // like Sentinel; otherwise connections stay open after the server changes its role
		if _, err := t.askServer(ctx, other, "CLIENT", "KILL", "TYPE", "normal"); err != nil {
			return err
		}
	}
	if err := t.awaitData(ctx, other); err != nil {
		return err
	}
	t.relays[other].Heal()
	t.relays[other].Reset()
	return nil
}

// fork detaches the copy of a node, so that it becomes older.
func (t *trial) fork(ctx context.Context, node int) error {
	_, err := t.askServer(ctx, t.nodes+node, "REPLICAOF", "NO", "ONE")
	return err
}

// goBack gives a node the data of its copy while requests are in flight.
func (t *trial) goBack(ctx context.Context, node int) error {
	copied := t.nodes + node
	t.relays[node].Break(relay.Requests, relay.Fault{Mode: relay.Hold})
	defer t.relays[node].Heal()
	if err := t.follow(ctx, node, copied); err != nil {
		return err
	}
	if err := t.awaitData(ctx, node); err != nil {
		return err
	}
	if _, err := t.askServer(ctx, node, "REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	t.relays[node].Heal()
	if err := t.follow(ctx, copied, node); err != nil {
		return err
	}
	return t.awaitData(ctx, copied)
}

// follow makes a server a replica of another.
func (t *trial) follow(ctx context.Context, replica, primary int) error {
	host, port, err := net.SplitHostPort(addr(t.fleet.URLs()[primary]))
	if err != nil {
		return err
	}
	_, err = t.askServer(ctx, replica, "REPLICAOF", host, port)
	return err
}

// awaitData waits until a replica has its primary's data.
func (t *trial) awaitData(ctx context.Context, replica int) error {
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	err := poll(ctx, func() (bool, error) {
		role, err := redis.Values(t.askServer(ctx, replica, "ROLE"))
		if err != nil {
			return false, err
		}
		state, _ := redis.String(role[len(role)-2], nil)
		return state == "connected", nil
	})
	if err != nil {
		return fmt.Errorf("server %d does not become a replica: %w", replica, err)
	}
	return nil
}
