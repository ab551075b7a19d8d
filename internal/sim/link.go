package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

var (
	errRefused = errors.New("dial: connection refused")
	errDial    = errors.New("dial: no answer")
	errReset   = errors.New("connection reset")
	errSilence = errors.New("no reply: connection given up")
	errClosed  = errors.New("node closed")
)

// A link is a client's connection to a server: the client's redlock.Node.
type link struct {
	client *Client
	server *Server

	closed bool
	counts map[counter]int
	unsent []*call            // wait for a connection
	owed   []*call            // releases to be repeated on the next one
	open   map[*call]struct{} // submitted, not replied to
	there  time.Duration      // when the last request arrives; none may overtake it
	back   time.Duration      // the same of the replies
}

type counter struct {
	op  redlock.Op
	key string
}

// A call is one request of one client to one server.
type call struct {
	link  *link
	req   redlock.Request // a copy: the server may run it after the last reply
	count int
	run   int // the server's process that it was sent to

	slot int
	to   redlock.Receiver // nil for the retry of a release
	born time.Time        // when the request was first submitted
}

func (l *link) String() string { return l.server.name }

// Submit implements redlock.Node.
func (l *link) Submit(req *redlock.Request, slot int, to redlock.Receiver) error {
	l.world().mu.Lock()
	defer l.world().mu.Unlock()
	c := &call{link: l, req: *req, slot: slot, to: to, born: time.Now()}
	err := l.submit(c)
	if err != nil {
		c.retry()
	}
	return err
}

func (l *link) submit(c *call) error {
	w := l.world()
	if l.closed {
		return fmt.Errorf("sim: %s: %w", l, errClosed)
	}
	k := counter{c.req.Op, c.req.Key}
	l.counts[k]++
	c.count = l.counts[k]
	w.tell(c, Submitted, 0)
	switch {
	case l.server.down && !l.server.deaf:
		return fmt.Errorf("sim: %s: %w", l, errRefused)
	case l.server.down, len(l.unsent) > 0: // nothing overtakes those that wait
		l.unsent = append(l.unsent, c)
		w.timeline.after(c.req.Timeout, func() { l.expire(c) })
	default:
		l.send(c)
	}
	l.open[c] = struct{}{}
	return nil
}

// send puts a request on the wire.
func (l *link) send(c *call) {
	w := l.world()
	c.run = l.server.run
	if d, lost := w.travel(c.leg(false)); !lost {
		l.there = max(w.timeline.now()+d, l.there)
		w.timeline.at(l.there, func() { l.server.arrive(c) })
	}
	w.timeline.after(w.net.Patience, func() { c.reply(redlock.Reply{Outcome: redlock.Unknown, Err: errSilence}) })
}

// connected sends what has waited for the server, first the releases.
func (l *link) connected() {
	l.world().mu.Lock()
	defer l.world().mu.Unlock()
	if l.server.down {
		return
	}
	owed, unsent := l.owed, l.unsent
	l.owed, l.unsent = nil, nil
	for _, c := range owed {
		c.repeat()
	}
	for _, c := range unsent {
		l.send(c)
	}
}

// expire fails a request that was not sent in time.
func (l *link) expire(c *call) {
	l.world().mu.Lock()
	i := slices.Index(l.unsent, c)
	if i >= 0 {
		l.unsent = slices.Delete(l.unsent, i, i+1)
	}
	l.world().mu.Unlock()
	if i >= 0 {
		c.reply(redlock.Reply{Outcome: redlock.Failed, Err: errDial})
	}
}

// Close implements redlock.Node. What was sent can still be run by the server,
// as with a real connection.
func (l *link) Close() error {
	l.world().mu.Lock()
	l.closed = true
	fate := map[*call]redlock.Outcome{}
	for c := range l.open {
		fate[c] = redlock.Unknown
	}
	for _, c := range l.unsent {
		fate[c] = redlock.Failed
	}
	l.unsent = nil
	l.world().mu.Unlock()
	for c, outcome := range fate {
		c.reply(redlock.Reply{Outcome: outcome, Err: errClosed})
	}
	return nil
}

func (l *link) world() *World { return l.server.world }

func (c *call) leg(reply bool) Leg {
	return Leg{c.link.client.id, c.link.server.index, c.req.Op, c.req.Key, c.count, reply}
}

// answer puts the server's reply on the wire. The World must be locked.
func (c *call) answer(reply redlock.Reply) {
	l, w := c.link, c.link.world()
	if d, lost := w.travel(c.leg(true)); !lost {
		l.back = max(w.timeline.now()+d, l.back)
		w.timeline.at(l.back, func() { c.reply(reply) })
	}
}

// broken tells the client that the connection ended. The World must be locked.
func (c *call) broken() { c.answer(redlock.Reply{Outcome: redlock.Unknown, Err: errReset}) }

// reply gives the client its one reply, if it did not have it yet.
func (c *call) reply(reply redlock.Reply) {
	l, w := c.link, c.link.world()
	w.mu.Lock()
	_, open := l.open[c]
	delete(l.open, c)
	if open {
		w.tell(c, Replied, reply.Outcome)
		if reply.Outcome == redlock.Unknown || reply.Outcome == redlock.Failed && reply.Err != redlock.ErrWrongType {
			c.retry()
		}
	}
	w.mu.Unlock()
	if open && c.to != nil {
		l.client.do(func() { c.to.Receive(c.slot, reply) })
	}
}

// retry repeats a release that must not be given up, on the next connection.
// The World must be locked.
func (c *call) retry() {
	if c.req.Op != redlock.OpRelease || !c.req.MayHold || c.link.closed {
		return
	}
	if c.link.server.down {
		c.link.owed = append(c.link.owed, c)
		return
	}
	c.link.world().timeline.after(c.req.Timeout, func() {
		c.link.client.do(func() {
			c.link.world().mu.Lock()
			defer c.link.world().mu.Unlock()
			c.repeat()
		})
	})
}

// repeat submits a release once more, unless its key must have expired.
func (c *call) repeat() {
	if time.Since(c.born) > c.req.TTL+redlock.Drift(c.req.TTL) {
		return
	}
	again := &call{link: c.link, req: c.req, born: c.born}
	if c.link.submit(again) != nil {
		again.retry()
	}
}
