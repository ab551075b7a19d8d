package ticket

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Life is how long a silent waiter keeps its place. One that is alive asks again sooner.
const Life = time.Second

// A Desk is where places in the order of one key are taken.
type Desk struct {
	Nodes   []protocol.Node
	Key     string        // that is waited for
	Timeout time.Duration // of each request
	Wake    func()        // the owner: an answer or a call has come
	Heard   func(others int)
	Begin   func() // a request that somebody waits for, at the end
	Done    func() // it was answered
}

// A Place is that of one waiter in the order. Receive is for nodes; the rest belongs to the owner.
type Place struct {
	desk   *Desk
	id     string
	at     quorum.Set  // nodes where there may be a ticket
	asked  int         // questions so far
	called atomic.Bool // since Ask: others have gone or, if it is the first, one has come
	stop   func()      // of the Watch for calls; nil: there is none

	mu     lockorder.Mutex[lockorder.Ticket]
	answer Standing // to the question with the highest number
}

// A Standing is what a node has said about a place. The zero Standing is none.
type Standing struct {
	Outcome protocol.Outcome
	Others  int // places: all that are behind if it is the first, and else those before it

	question int
}

func (s Standing) IsKnown() bool   { return s.Outcome != 0 }
func (s Standing) IsFirst() bool   { return s.Outcome == protocol.Granted }
func (s Standing) IsBehind() bool  { return s.Outcome == protocol.Refused }
func (s Standing) IsSecond() bool  { return s.IsBehind() && s.Others == 1 }
func (s Standing) HasFailed() bool { return s.IsKnown() && !s.IsFirst() && !s.IsBehind() }

// Take returns a place under an id that no other has. It is at no node yet.
func (d *Desk) Take(id string) *Place {
	d.Begin() // until End
	return &Place{desk: d, id: id}
}

// Ask takes or keeps the place at node i, for an owner that has waited for so long. A node that is asked
// for the first time may know others that came before.
func (p *Place) Ask(i int, waited time.Duration) {
	p.called.Store(false)
	p.at.Add(i)
	p.asked++
	if p.desk.Nodes[i].Submit(p.request(protocol.Ticket{Waited: waited}), p.asked, p) != nil {
		p.Receive(p.asked, protocol.Reply{Outcome: protocol.Failed})
	}
}

// Receive takes the reply to an OpQueue.
func (p *Place) Receive(number int, reply protocol.Reply) {
	p.mu.Lock()
	if number > p.answer.question {
		p.answer = Standing{reply.Outcome, reply.Others, number}
	}
	p.mu.Unlock()
	p.desk.Wake()
}

// Standing returns the answer to the last Ask.
func (p *Place) Standing() Standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer.question != p.asked {
		return Standing{}
	}
	return p.answer
}

// Listen has node i call the owner, before the next Ask of that node, so that no call is missed.
func (p *Place) Listen(i int) {
	key := keys.Call(keys.Queue.Of(p.desk.Key), p.id)
	if w, ok := p.desk.Nodes[i].(protocol.Watchable); ok && p.stop == nil {
		p.stop = w.Watch(key, func(string) {
			p.called.Store(true)
			p.desk.Wake()
		})
	}
	_ = p.desk.Nodes[i].Submit(&protocol.Request{Op: protocol.OpWatch, Key: key, Timeout: p.desk.Timeout}, 0, ignored{})
}

// IsCalled reports whether the place has been called since the last Ask.
func (p *Place) IsCalled() bool { return p.called.Load() }

// Unlisten undoes Listen.
func (p *Place) Unlisten() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// Leave gives the place at node i back, and with pastFirst that of the first, which has left the lock
// lie. Otherwise the ticket would be in the way of others for Life.
func (p *Place) Leave(i int, pastFirst bool) {
	if !p.at.Has(i) {
		return
	}
	p.at.Remove(i)
	p.desk.Begin()
	if p.desk.Nodes[i].Submit(p.request(protocol.Ticket{Leave: true, Overtakes: pastFirst}), 0, departure{p.desk}) != nil {
		p.desk.Done()
	}
}

// End leaves all queues, and is called once.
func (p *Place) End(pastFirst bool) {
	p.Unlisten()
	for i := range p.desk.Nodes {
		p.Leave(i, pastFirst)
	}
	p.desk.Done()
}

func (p *Place) request(t protocol.Ticket) *protocol.Request {
	t.ID, t.Life = p.id, Life
	return &protocol.Request{Op: protocol.OpQueue, Key: keys.Queue.Of(p.desk.Key), Timeout: p.desk.Timeout, Ticket: &t}
}

// A departure takes the reply to the last request of a place at a node, which tells who is still there.
type departure struct{ desk *Desk }

// Receive implements protocol.Receiver.
func (d departure) Receive(_ int, reply protocol.Reply) {
	if reply.Outcome == protocol.Granted && reply.Others > 0 {
		d.desk.Heard(reply.Others)
	}
	d.desk.Done()
}

// ignored is the Receiver of replies that do not matter.
type ignored struct{}

func (ignored) Receive(int, protocol.Reply) {}
