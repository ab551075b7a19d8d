package sim

import (
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock"
)

// A Client is a process that uses the servers: a clock, and a connection to
// each of them.
type Client struct {
	world *World
	id    int
	clock *clock.Fake
	links []*link

	mu     sync.Mutex
	paused bool
	held   []func() // what happened to the process while it was paused
}

// NewClient returns a client whose clock gains rate seconds in a second.
func (w *World) NewClient(rate float64) *Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &Client{world: w, id: len(w.clients), clock: clock.NewFake(rate)}
	w.clients = append(w.clients, c)
	for _, s := range w.servers {
		l := &link{client: c, server: s, counts: map[counter]int{}, open: map[*call]struct{}{}}
		s.links = append(s.links, l)
		c.links = append(c.links, l)
	}
	return c
}

// Nodes returns the client's connections, one to each server, for one Locker.
func (c *Client) Nodes() []redlock.Node {
	nodes := make([]redlock.Node, len(c.links))
	for i, l := range c.links {
		nodes[i] = l
	}
	return nodes
}

// Pause stops the process as a long garbage collection, SIGSTOP or the suspend
// of a virtual machine does: time goes on, and its clock with it, but no timer
// fires and no reply is read until Resume.
func (c *Client) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
}

// Resume lets a paused process go on with what has come in meanwhile.
func (c *Client) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.held) > 0 {
		held := c.held
		c.held = nil
		c.mu.Unlock()
		for _, f := range held {
			f()
			time.Sleep(c.world.timeline.apart)
		}
		c.mu.Lock()
	}
	c.paused = false
}

// Sleep is time.Sleep in the process: by its clock, and not over before it is
// resumed.
func (c *Client) Sleep(d time.Duration) {
	over := make(chan struct{})
	c.Clock().AfterFunc(d, func() { close(over) })
	<-over
}

// do runs what happens to the process, now or once it is resumed.
func (c *Client) do(f func()) {
	c.mu.Lock()
	if c.paused {
		c.held = append(c.held, f)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	f()
}

// Clock returns the process's clock.
func (c *Client) Clock() clock.Clock { return processClock{c.clock, c} }

// processClock is a clock whose timers do not fire while the process is paused.
type processClock struct {
	*clock.Fake
	client *Client
}

func (c processClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &processTimer{client: c.client, f: f}
	t.Timer = c.Fake.AfterFunc(d, t.fire)
	return t
}

// processTimer can still be stopped if it became due during a pause and did
// not come to run yet.
type processTimer struct {
	clock.Timer
	client *Client
	f      func()

	mu  sync.Mutex
	due *firing // nil if none is to come to run
}

type firing struct{ _ byte } // not of size zero: pointers to it must differ

func (t *processTimer) fire() {
	t.mu.Lock()
	this := &firing{}
	t.due = this
	t.mu.Unlock()
	t.client.do(func() {
		t.mu.Lock()
		due := t.due == this
		if due {
			t.due = nil
		}
		t.mu.Unlock()
		if due {
			t.f()
		}
	})
}

// revoke takes back a firing that has not come to run.
func (t *processTimer) revoke() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.due != nil
	t.due = nil
	return was
}

func (t *processTimer) Stop() bool {
	due := t.revoke()
	return t.Timer.Stop() || due
}

func (t *processTimer) Reset(d time.Duration) bool {
	due := t.revoke()
	return t.Timer.Reset(d) || due
}
