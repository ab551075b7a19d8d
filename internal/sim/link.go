package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

var (
	errRefused = errors.New("dial: connection refused")
	errDial    = errors.New("dial: no answer")
	errReset   = errors.New("connection reset")
	errSilence = errors.New("no reply: connection given up")
	errClosed  = errors.New("node closed")
	errDead    = errors.New("the process has ended")

	errDenied error = protocol.PermanentError("forbids the command")
)

// A link is a client's connection to a server: the client's protocol.Node.
type link struct {
	client *Client
	server *Server
	index  int // index in the links of the server

	closed bool
	counts map[counter]int
	unsent []*call       // waiting for a connection
	undone []*call       // releases to repeat on the next connection
	open   []*call       // submitted and not answered
	there  time.Duration // when the last request arrives; a later one must not overtake it
	back   time.Duration // when the last reply arrives
	hints  hints
}

type counter struct {
	op  protocol.Op
	key string
}

// A call is one request of one client to one server.
type call struct {
	link  *link
	req   protocol.Request // a copy: the server may run it after the last reply
	count int
	run   int // number of the server's process that got the request

	slot int
	to   protocol.Receiver // nil for the retry of a release
	born time.Duration     // when the request was first submitted

	limit *event // ends the call; nil if the call was not sent and does not wait for a connection
}

func (l *link) String() string { return l.server.name }

// Submit implements protocol.Node.
func (l *link) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	l.world().mu.Lock()
	defer l.world().mu.Unlock()
	c := &call{link: l, req: *req, slot: slot, to: to, born: l.world().timeline.now()}
	if err := l.submit(c); err != nil {
		c.retry()
		return fmt.Errorf("sim: %s: %w", l, err)
	}
	return nil
}

func (l *link) submit(c *call) error {
	w := l.world()
	switch {
	case l.closed:
		return errClosed
	case l.client.dead:
		return errDead
	}
	k := counter{c.req.Op, Stem(c.req.Key)}
	c.count = l.counts[k] + 1
	l.counts[k] = c.count
	w.tell(c, Submitted, 0)
	switch {
	case l.server.down && !l.server.deaf:
		return errRefused
	case l.server.down, len(l.unsent) > 0: // a request does not overtake waiting requests
		l.unsent = append(l.unsent, c)
		c.limit = w.timeline.after(c.req.Timeout, func() { l.expire(c) })
	default:
		l.send(c)
	}
	l.open = append(l.open, c)
	return nil
}

// send puts a request on the wire.
func (l *link) send(c *call) {
	w := l.world()
	c.run = l.server.run
	d, lost := w.travel(c.leg(false))
	if !lost {
		l.there = max(w.timeline.now()+d, l.there)
		w.timeline.at(l.there, func() { l.server.arrive(c) })
	}
	c.limit = w.timeline.after(w.net.Patience, func() { c.reply(protocol.Reply{Outcome: protocol.Unknown, Err: errSilence}) })
}

// connected sends the requests that have waited for the server, beginning with the releases.
func (l *link) connected() {
	w := l.world()
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.server.down || l.client.dead {
		return
	}
	undone, unsent := l.undone, l.unsent
	l.undone, l.unsent = nil, nil
	for _, c := range undone {
		c.repeat()
	}
	for _, c := range unsent {
		w.timeline.drop(c.limit)
		l.send(c)
	}
	l.pass(everything) // earlier looks at keys are not watched
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
		c.reply(protocol.Reply{Outcome: protocol.Failed, Err: errDial})
	}
}

// Close implements protocol.Node. The server can still run requests that were sent, as with a real
// connection.
func (l *link) Close() error {
	l.world().mu.Lock()
	l.closed = true
	open, unsent := slices.Clone(l.open), l.unsent
	l.unsent = nil
	l.endHints()
	l.world().mu.Unlock()
	for _, c := range unsent {
		c.reply(protocol.Reply{Outcome: protocol.Failed, Err: errClosed})
	}
	for _, c := range open {
		c.reply(protocol.Reply{Outcome: protocol.Unknown, Err: errClosed})
	}
	return nil
}

func (l *link) world() *World { return l.server.world }

func (c *call) leg(reply bool) Leg {
	return Leg{c.link.client.id, c.link.server.index, c.req.Op, c.req.Key, c.count, reply, false}
}

// answer puts the server's reply on the wire. The World must be locked.
func (c *call) answer(reply protocol.Reply) {
	l, w := c.link, c.link.world()
	if d, lost := w.travel(c.leg(true)); !lost {
		l.back = max(w.timeline.now()+d, l.back)
		w.timeline.at(l.back, func() { c.reply(reply) })
	}
}

// broken reports to the client that the connection ended. The World must be locked.
func (c *call) broken() { c.answer(protocol.Reply{Outcome: protocol.Unknown, Err: errReset}) }

// reply passes its only reply to the client, unless the client has it already.
func (c *call) reply(reply protocol.Reply) {
	l, w := c.link, c.link.world()
	w.mu.Lock()
	i := slices.Index(l.open, c)
	if i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
		if c.limit != nil {
			w.timeline.drop(c.limit)
		}
		w.tell(c, Replied, reply.Outcome)
		if reply.Outcome == protocol.Unknown || reply.Outcome == protocol.Failed && reply.Err != protocol.ErrWrongType {
			c.retry()
		}
	}
	w.mu.Unlock()
	if i >= 0 && c.to != nil {
		l.client.do(func() { c.to.Receive(c.slot, reply) })
	}
}

// retry repeats a release that must not be given up, on the next connection. The World must be
// locked.
func (c *call) retry() {
	if !c.req.Op.Releases() || !c.req.MayHold || c.link.closed || c.link.client.dead {
		return
	}
	if c.link.server.down {
		c.link.undone = append(c.link.undone, c)
		return
	}
	c.link.world().timeline.after(c.req.Timeout, func() {
		c.link.client.do(func() { c.link.server.locked(c.repeat) })
	})
}

// repeat submits a release once more, unless its key must have expired.
func (c *call) repeat() {
	if c.link.world().timeline.now()-c.born > c.req.TTL+redlock.Drift(c.req.TTL) {
		return
	}
	again := &call{link: c.link, req: c.req, born: c.born}
	if c.link.submit(again) != nil {
		again.retry()
	}
}
