// Package trace follows a history of one lock in the model of spec/lock.pml, spec/shared.pml and
// spec/fence.pml: each event must be a step that the model allows after the events before it.
//
// The model's ticks are nanoseconds here, and a history names its own steps, so nothing is searched
// for. What the model says of a node, a claim and a token is in the method of the event's kind, and
// each guard has the name of a [Rule].
//
// A history of clients alone does not tell what nodes did. Then [Model.Hidden] has the steps of
// nodes happen unseen, and what clients did must be possible with some of them.
package trace

import "fmt"

// A Kind says what an Event is.
type Kind string

// The steps of clients.
const (
	Asks     Kind = "asks"     // all nodes for the lock: Life, Reads
	Holds    Kind = "holds"    // the lock: Until, Token
	Extended Kind = "extended" // the lock: Until
	Reads    Kind = "reads"    // a writer is a reader from here on
	GivesUp  Kind = "gives up" // without having held the lock
	Stops    Kind = "stops"    // to hold the lock: by a release, or because it heard of a loss
)

// The steps of nodes, which have a Node, and a Claim where they are about one.
const (
	Grants   Kind = "grants"   // it gives the claim its key
	Renews   Kind = "renews"   // it lets the claim's key live for its Life from now
	Releases Kind = "releases" // it deletes the claim's key, if it is there
	Forgets  Kind = "forgets"  // all keys; what it grants before Until does not count
	Restarts Kind = "restarts" // with all keys; likewise
)

// An Event is one step. Fields that its kind does not mention are zero, but for At and, of the steps
// of clients, Claim.
type Event struct {
	At    int64 // true time, in nanoseconds
	Kind  Kind
	Claim string // one try of a client, by a value of its own
	Node  int
	Life  int64 // how long a grant is believed, which no node's clock may undercut
	Until int64 // up to when the client relies on the lock, but not then
	Token int64 // zero: none
	Reads bool  // the claim is a reader's
}

func (e Event) String() string {
	if e.Claim == "" {
		return fmt.Sprintf("%d: node %d %s", e.At, e.Node, e.Kind)
	}
	switch e.Kind {
	case Grants, Renews, Releases:
		return fmt.Sprintf("%d: node %d %s the key of %s", e.At, e.Node, e.Kind, e.Claim)
	}
	return fmt.Sprintf("%d: %s %s", e.At, e.Claim, e.Kind)
}

// A Rule is a guard of the model.
type Rule string

// The rules.
const (
	OutOfOrder  Rule = "no step of a claim's life"
	NotHeld     Rule = "a release of what is not held"
	TwoHolders  Rule = "two holders"
	NoQuorum    Rule = "no quorum of votes that count"
	TooLong     Rule = "a deadline beyond what the votes are worth"
	TooLate     Rule = "an extension after the deadline"
	KeyTaken    Rule = "a node grants what it has granted to another"
	KeyGone     Rule = "a node renews a key that it does not have"
	TokenTwice  Rule = "a token that another has"
	TokenFallen Rule = "a token not above one that was granted before"
)

// A Rejection is the first event that is no step of the model.
type Rejection struct {
	Index int // of the event, from zero
	Event Event
	Rule  Rule
}

func (r *Rejection) Error() string {
	return fmt.Sprintf("trace: event %d, %v: %s", r.Index+1, r.Event, r.Rule)
}

// A Model says which system a history is of.
type Model struct {
	Nodes  int
	Hidden bool // the history has no steps of nodes
}

// Follow returns a *Rejection for the first event that is no step of the model, or nil. The events
// are those of one lock, in the order in which they happened.
func (m Model) Follow(events []Event) error {
	w := &world{Model: m, nodes: make([]node, m.Nodes), claims: map[string]*claim{}, owners: map[int64]string{}}
	for i := range w.nodes {
		w.nodes[i].keys = map[string]int64{}
	}
	for i, e := range events {
		if rule := w.step(e); rule != "" {
			return &Rejection{i, e, rule}
		}
	}
	return nil
}

// A world is the model's state.
type world struct {
	Model
	nodes   []node
	claims  map[string]*claim
	holding []*claim         // those that may still be relied on
	owners  map[int64]string // of tokens
	top     int64            // the highest token that was granted
}

type node struct {
	keys map[string]int64 // of a writer, or of readers: when each expires at the earliest
	mute int64            // what it grants before is no vote
}

type phase int

const (
	asking phase = iota
	held
	over
)

type claim struct {
	phase phase
	reads bool
	asked int64
	life  int64
	until int64
	floor int64         // the highest token that was granted before it was asked for
	votes map[int]int64 // when each node gave the vote that counts, or renewed it last
	had   map[int]int64 // until when the client knows that a node has its key
}

func (c *claim) reliesAt(at int64) bool { return c.phase == held && at < c.until }

func (w *world) step(e Event) Rule {
	switch e.Kind {
	case Forgets, Restarts:
		w.forget(e)
		return ""
	case Asks:
		if w.claims[e.Claim] != nil {
			return OutOfOrder
		}
		w.claims[e.Claim] = &claim{reads: e.Reads, asked: e.At, life: e.Life, floor: w.top, votes: map[int]int64{}, had: map[int]int64{}}
		return ""
	}
	c := w.claims[e.Claim]
	if c == nil {
		if e.Kind == Stops {
			return NotHeld
		}
		return OutOfOrder
	}
	switch e.Kind {
	case Grants:
		return w.grant(c, e)
	case Renews:
		return w.renew(c, e)
	case Releases:
		delete(w.nodes[e.Node].keys, e.Claim)
	case Holds:
		return w.hold(c, e)
	case Extended:
		return w.extend(c, e)
	case Reads:
		if c.phase != held {
			return OutOfOrder
		}
		c.reads = true
	case GivesUp:
		if c.phase != asking {
			return OutOfOrder
		}
		c.phase = over
	case Stops:
		if c.phase != held {
			return NotHeld
		}
		c.phase = over
	default:
		return OutOfOrder
	}
	return ""
}

// forget is the memory of lock.pml.
func (w *world) forget(e Event) {
	n := &w.nodes[e.Node]
	n.mute = max(n.mute, e.Until)
	if e.Kind == Forgets {
		clear(n.keys)
	}
}

// grant is a node's answer to a request for the lock, which may come late or be a repair: then it
// is no vote.
func (w *world) grant(c *claim, e Event) Rule {
	n := &w.nodes[e.Node]
	for other, expires := range n.keys {
		switch {
		case other == e.Claim || c.reads && w.claims[other].reads:
		case e.At < expires:
			return KeyTaken
		default: // it must have expired
			delete(n.keys, other)
		}
	}
	n.keys[e.Claim] = e.At + c.life
	if n.mute <= e.At {
		c.had[e.Node] = e.At + c.life
		if c.phase == asking {
			c.votes[e.Node] = e.At
		}
	}
	return ""
}

// renew is a node's answer to an extension. In quarantine it counts only for a client that knows that
// the node has had the key lately, so that nobody else's vote there has counted since.
func (w *world) renew(c *claim, e Event) Rule {
	n := &w.nodes[e.Node]
	if _, there := n.keys[e.Claim]; !there {
		return KeyGone
	}
	n.keys[e.Claim] = e.At + c.life
	if n.mute <= e.At || e.At < c.had[e.Node] {
		c.votes[e.Node], c.had[e.Node] = e.At, e.At+c.life
	}
	return ""
}

// votesSince counts the nodes whose votes are of that time or later.
func (c *claim) votesSince(at int64) (n int) {
	for _, voted := range c.votes {
		if voted >= at {
			n++
		}
	}
	return n
}

// hold is the end of a vote that was won.
func (w *world) hold(c *claim, e Event) Rule {
	switch {
	case c.phase != asking:
		return OutOfOrder
	case !w.Hidden && c.votesSince(c.asked) <= w.Nodes/2:
		return NoQuorum
	case c.life > 0 && e.Until > c.asked+c.life:
		return TooLong
	}
	if e.Token != 0 {
		if w.owners[e.Token] != "" {
			return TokenTwice
		}
		if e.Token <= c.floor {
			return TokenFallen
		}
		w.owners[e.Token] = e.Claim
		w.top = max(w.top, e.Token)
	}
	c.phase, c.until = held, e.Until
	return w.alone(c, e.At)
}

// extend is an extension that a quorum has granted since it began, a Life before its deadline.
func (w *world) extend(c *claim, e Event) Rule {
	switch {
	case c.phase != held:
		return OutOfOrder
	case e.At >= c.until:
		return TooLate
	case !w.Hidden && c.votesSince(e.Until-c.life) <= w.Nodes/2:
		return NoQuorum
	}
	c.until = max(c.until, e.Until)
	return w.alone(c, e.At)
}

// alone is promise P1 for a claim that has just come to be relied on.
func (w *world) alone(c *claim, at int64) Rule {
	if !c.reliesAt(at) {
		return ""
	}
	others := w.holding[:0]
	for _, other := range w.holding {
		if other.reliesAt(at) && other != c {
			others = append(others, other)
		}
	}
	w.holding = append(others, c)
	for _, other := range others {
		if !(c.reads && other.reads) {
			return TwoHolders
		}
	}
	return ""
}
