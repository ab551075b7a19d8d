package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A Client is a process that uses the servers. It has a clock and a connection to each server.
type Client struct {
	world *World
	id    int
	rate  float64
	nodes []protocol.Node // first connections
	links []*link         // all connections

	dead bool // guarded by World.mu

	mu     sync.Mutex
	paused bool
	held   []func() // events of the process while it was paused
}

// NewClient returns a client whose clock advances by rate seconds per second. It panics unless rate
// is above zero.
func (w *World) NewClient(rate float64) *Client {
	if !(rate > 0) {
		panic("sim: a clock must advance")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &Client{world: w, id: len(w.clients), rate: rate}
	w.clients = append(w.clients, c)
	c.nodes = c.connect()
	return c
}

// connect makes a connection to each server. The World must be locked.
func (c *Client) connect() (nodes []protocol.Node) {
	for _, s := range c.world.servers {
		l := &link{client: c, server: s, index: len(s.links), counts: map[counter]int{}}
		s.links = append(s.links, l)
		c.links = append(c.links, l)
		nodes = append(nodes, l)
	}
	return nodes
}

// Nodes returns the client's first connections, one to each server, for one Locker.
func (c *Client) Nodes() []protocol.Node { return slices.Clone(c.nodes) }

// MoreNodes opens one more connection to each server.
func (c *Client) MoreNodes() []protocol.Node {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	return c.connect()
}

// Pause stops the process, as a long garbage collection, a SIGSTOP or the suspension of a virtual
// machine does: time passes, and the process's clock advances, but no timer fires and no reply is
// read until Resume.
func (c *Client) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
}

// Resume continues a paused process, beginning with the events since Pause.
func (c *Client) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.held) > 0 {
		held := c.held
		c.held = nil
		c.mu.Unlock()
		for _, f := range held {
			f()
			c.world.timeline.space()
		}
		c.mu.Lock()
	}
	c.paused = false
}

// Crash ends the process: it sends no more requests. The servers run the requests that it has sent.
// Its goroutines are paused until Resume. After that, they cannot submit any request, and end.
func (c *Client) Crash() {
	c.Pause()
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.dead = true
	for _, l := range c.links {
		l.endHints()
	}
}

// Sleep is time.Sleep by the clock of the process. It returns only while the process runs.
func (c *Client) Sleep(d time.Duration) {
	over := make(chan struct{})
	c.Clock().AfterFunc(d, func() { close(over) })
	<-over
}

// do runs an event of the process, now or at Resume.
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
func (c *Client) Clock() clock.Clock { return processClock{c} }

type processClock struct{ client *Client }

func (c processClock) Now() clock.Instant { return c.client.reading(c.client.world.timeline.now()) }

// reading returns the reading of the client's clock at a time of the World.
func (c *Client) reading(at time.Duration) clock.Instant {
	return clock.Instant(float64(at) * c.rate)
}

// moment returns the time at which the client's clock will have advanced by d.
func (c *Client) moment(d time.Duration) time.Duration {
	const decades = 1 << 60 // far from an overflow
	d = min(max(0, d), decades)
	now := c.world.timeline.now()
	at := now + time.Duration(float64(d)/c.rate)
	for then := c.reading(now).Add(d); c.reading(at) < then; {
		at++ // until the rounding error is corrected
	}
	return at
}

func (c processClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &timer{client: c.client, f: f}
	t.Reset(d)
	return t
}

// A timer does not fire while its process is paused. If it expires during the pause, it can still
// be stopped.
type timer struct {
	client *Client
	f      func()

	mu      sync.Mutex
	pending *event // nil if the timer must not fire
	resets  int
}

func (t *timer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drop()
}

func (t *timer) Reset(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.drop()
	t.resets++
	of := t.resets
	t.pending = t.client.world.timeline.at(t.client.moment(d), func() { t.client.do(func() { t.fire(of) }) })
	return was
}

func (t *timer) drop() (was bool) {
	if t.pending == nil {
		return false
	}
	t.client.world.timeline.drop(t.pending)
	t.pending = nil
	return true
}

// fire calls the function, unless the timer was stopped or reset since the given reset.
func (t *timer) fire(of int) {
	t.mu.Lock()
	due := t.pending != nil && t.resets == of
	if due {
		t.pending = nil
	}
	t.mu.Unlock()
	if due {
		go func() {
			defer t.client.world.PrintSeed()
			t.f()
		}()
	}
}
