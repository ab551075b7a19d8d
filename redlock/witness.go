package redlock

import (
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A witness is one node, as far as its memory goes. It judges the node's votes.
// A vote that the last reading of the record does not cover is parked until it
// has been read again.
type witness struct {
	guard *guard
	node  Node

	mu     sync.Mutex
	epoch  Epoch            // as last read; no Generation: never
	run    string           // of the process that it was read from
	ends   time.Duration    // when the record dies, by the server's clock
	before [2]time.Duration // the same before the last reading changed it, and as the reading before knew it
	skew   skew
	from   clock.Instant // votes count from here on
	why    string        // they did not before
	fine   sight         // what was last looked at and found in order
	asking bool          // the record is being read
	parked []vote
}

// A sight is what a reply shows of a node's memory.
type sight struct {
	run  string
	life time.Duration
}

// A vote is a reply of a node that granted, to be judged.
type vote struct {
	round *round
	reply Reply
	slot  int
	heard clock.Instant
	again bool          // the record was read for it before
	clock time.Duration // the server's, when it voted
}

// judge says why v does not count (nil: it does), or parks it; it is then
// given to its round later.
func (w *witness) judge(v *vote) (void error, parked bool) {
	ttl := w.guard.needed(v.round.req.TTL)
	seen := sight{v.reply.Run, v.reply.Life}
	w.mu.Lock()
	v.clock = w.ends - v.reply.Life
	if seen.life > 0 && seen == w.fine && ttl <= w.epoch.MaxTTL { // many votes of one moment, without a reading of our clock
		w.mu.Unlock()
		return nil, false
	}
	v.heard = w.guard.settings.clock.Now()
	if w.covers(*v, ttl) {
		if void = w.standing(v.heard); void == nil {
			w.fine = seen
		}
		w.mu.Unlock()
		return void, false
	}
	w.park(*v, ttl)
	return nil, true
}

// covers reports whether what is known of the record still held when v was
// given: the same process, the same record, a clock that was not set, as long a
// TTL, and no quarantine whose end has yet to be seen. The witness must be
// locked.
func (w *witness) covers(v vote, ttl time.Duration) bool {
	if w.epoch.Generation == "" || v.reply.Run != w.run || v.reply.Life <= 0 || ttl > w.epoch.MaxTTL {
		return false
	}
	next, jump := w.skew.look(v.clock, v.round.start, v.heard)
	if jump != 0 {
		return false
	}
	w.skew = next
	return w.epoch.Quarantine == 0 || v.heard < w.from
}

// standing says why the node has no vote, or nil. The witness must be locked.
func (w *witness) standing(now clock.Instant) error {
	g := w.guard
	switch {
	case w.epoch.Nodes != len(g.witnesses):
		return fmt.Errorf("%w: they lock by %d nodes, this one by %d, and two such quorums need not meet; "+
			"give all clients the same nodes, or stop them all and delete the key %q on every node",
			ErrSettings, w.epoch.Nodes, len(g.witnesses), g.settings.epoch)
	case now < w.from:
		return &QuarantineError{Left: w.from.Sub(now), Reason: w.why}
	}
	return nil
}

// notice looks at a vote against us. It counts in any case; but if a node that
// remembers knows of longer locks than we do, those that have forgotten must be
// in quarantine for longer.
func (w *witness) notice(v vote) {
	ttl := w.guard.needed(v.round.req.TTL)
	w.mu.Lock()
	v.heard = w.guard.settings.clock.Now()
	v.clock = w.ends - v.reply.Life
	if v.reply.Life <= 0 || w.covers(v, ttl) {
		w.mu.Unlock()
		return
	}
	w.ask(ttl)
}

// park keeps v until the record has been read, and unlocks the witness.
func (w *witness) park(v vote, ttl time.Duration) {
	w.parked = append(w.parked, v)
	v.round.parked.Add(1)
	w.ask(ttl)
}

// ask has the record read, unless it is being read, and unlocks the witness.
func (w *witness) ask(ttl time.Duration) {
	w.fine = sight{}
	first := !w.asking
	w.asking = true
	w.mu.Unlock()
	if first {
		w.read(ttl)
	}
}

// read asks for the record, or a new one.
func (w *witness) read(ttl time.Duration) {
	s := w.guard.settings
	r := &reading{witness: w, start: s.clock.Now()}
	r.req = Request{Op: OpAdmit, Key: s.epoch, TTL: ttl, Timeout: s.timeout(), Admit: &Admission{
		Generation: newValue(), Life: recordLife(), Quarantine: s.prefix + quarantineKey,
		Nodes: len(w.guard.witnesses), Known: w.guard.known(0),
	}}
	if err := w.node.Submit(&r.req, 0, r); err != nil {
		r.Receive(0, Reply{Outcome: Failed, Err: err})
	}
}

// A reading is one question for a node's epoch record.
type reading struct {
	witness *witness
	start   clock.Instant
	req     Request
}

// Receive implements Receiver: it judges the votes that have waited for it.
func (r *reading) Receive(_ int, reply Reply) {
	w := r.witness
	w.mu.Lock()
	parked := w.parked
	w.parked, w.asking = nil, false
	if reply.Outcome == Granted {
		w.learn(reply, r.start, w.guard.settings.clock.Now())
	}
	w.mu.Unlock()
	for _, v := range parked {
		v.round.parked.Add(-1)
		if reply.Outcome != Granted {
			v.count(fmt.Errorf("its memory could not be checked (key %q): %w", w.guard.settings.epoch, reply.Err))
		} else if void, parked := w.settle(&v); !parked {
			v.count(void)
		}
	}
}

// learn takes in a record that was read between sent and heard. The witness
// must be locked.
func (w *witness) learn(reply Reply, sent, heard clock.Instant) {
	e := *reply.Epoch
	w.guard.known(e.Known)
	if left := e.Quarantine; left > 0 {
		// It must pass on our clock, too: the server's may be set meanwhile.
		w.hold(heard.Add(left+Drift(left)), "it was restarted or flushed, or is new, and may have forgotten locks")
	}
	next, jump := w.skew.look(e.Clock, sent, heard)
	if jump > 0 {
		// Each key that it holds expires that much too early, whenever that is.
		w.hold(heard.Add(e.MaxTTL+Drift(e.MaxTTL)), fmt.Sprintf("its clock was set ahead by up to %v", jump.Round(time.Millisecond)))
	}
	w.before = [2]time.Duration{e.Clock + e.Found, e.Clock + e.Found}
	if e.Generation == w.epoch.Generation && reply.Run == w.run {
		w.before[1] = w.ends
	}
	w.epoch, w.run, w.skew, w.fine = e, reply.Run, next, sight{}
	w.ends = e.Clock + reply.Life
}

func (w *witness) hold(from clock.Instant, why string) {
	if from > w.from {
		w.from, w.why = from, why
	}
}

// settle is judge for a vote that was given before the record was read. If the
// vote came from the same process, and the record stood behind it even then,
// the node has forgotten nothing in between.
func (w *witness) settle(v *vote) (void error, parked bool) {
	ttl := w.guard.needed(v.round.req.TTL)
	w.mu.Lock()
	void = w.standing(v.heard)
	if void == nil && ttl > w.epoch.MaxTTL && !v.again { // parked behind a reading for a shorter one
		v.again = true
		w.park(*v, ttl)
		return nil, true
	}
	defer w.mu.Unlock()
	if void != nil {
		return void, false
	}
	if v.reply.Run == w.run && v.reply.Life > 0 && ttl <= w.epoch.MaxTTL {
		for _, ended := range w.before {
			v.clock = ended - v.reply.Life
			if _, jump := w.skew.look(v.clock, v.round.start, v.heard); jump == 0 {
				return nil, false
			}
		}
	}
	return &QuarantineError{Reason: "its epoch record has just changed"}, false
}

// count gives the vote to its round. One that does not count may have set the
// key all the same, which is what Unknown means. A token that the node accepted
// although it was far behind the node's clock is taken for one that it did not: if
// the node has forgotten, it has accepted higher ones before.
func (v vote) count(void error) {
	req := &v.round.req
	switch {
	case void != nil:
		v.reply.Outcome, v.reply.Err = Unknown, void
	case req.Token > 0 && v.reply.Floor == 0 && req.Token < (v.clock-req.Slack).Microseconds():
		v.reply.Floor = v.clock.Microseconds()
	}
	v.round.count(v.slot, v.reply)
}
