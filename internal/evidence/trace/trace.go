// Package trace follows a history of one lock in the model of spec/lock.pml, spec/shared.pml and
// spec/fence.pml: each event must be a step that the model allows after the previous events.
//
// The model's ticks are nanoseconds here. A history names its own steps, so Follow searches for
// nothing. The method for a kind of event contains the rules for nodes, claims and tokens, and each
// guard has the name of a [Rule].
//
// A history of clients alone lacks the steps of nodes. Then [Model.Hidden] allows every behavior of
// nodes, and only the steps of clients are checked.
package trace

import "fmt"

// A Kind is a kind of Event.
type Kind string

// The steps of clients.
const (
	Asks     Kind = "asks"     // asks all nodes for the lock: Life, Reads
	Holds    Kind = "holds"    // holds the lock: Until, Token
	Extended Kind = "extended" // has extended the lock: Until
	Reads    Kind = "reads"    // a writer becomes a reader
	GivesUp  Kind = "gives up" // ends an attempt without the lock
	Stops    Kind = "stops"    // no longer holds the lock, after a release or the notice of a loss
)

// The steps of nodes. They have a Node, and a Claim if they are about one.
const (
	Grants   Kind = "grants"   // sets the key of the claim
	Renews   Kind = "renews"   // sets the TTL of the claim's key to its Life
	Releases Kind = "releases" // deletes the claim's key, if it exists
	Forgets  Kind = "forgets"  // forgets all keys; grants before Until do not count
	Restarts Kind = "restarts" // restarts with all keys; grants before Until do not count
)

// An Event is one step. Fields without a meaning for its kind are zero, except At, and Claim in the
// steps of clients.
type Event struct {
	At    int64 // true time, in nanoseconds
	Kind  Kind
	Claim string // one attempt of a client, by its unique value
	Node  int
	Life  int64 // time for which a grant counts; no node may let the key expire earlier
	Until int64 // end of the client's reliance on the lock, exclusive
	Token int64 // zero without a token
	Reads bool  // the claim belongs to a reader
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
	NotHeld     Rule = "a release of a lock that is not held"
	TwoHolders  Rule = "two holders"
	NoQuorum    Rule = "no quorum of votes that count"
	TooLong     Rule = "a deadline beyond the validity of the votes"
	TooLate     Rule = "an extension after the deadline"
	KeyTaken    Rule = "a node grants a key that it has granted to another claim"
	KeyGone     Rule = "a node renews a key that it does not have"
	TokenTwice  Rule = "a token of another claim"
	TokenFallen Rule = "a token not above one that was granted before"
)

// A Rejection is the first event that the model does not allow.
type Rejection struct {
	Index int // index of the event, from zero
	Event Event
	Rule  Rule
}

func (r *Rejection) Error() string {
	return fmt.Sprintf("trace: event %d, %v: %s", r.Index+1, r.Event, r.Rule)
}

// A Model describes the system of a history.
type Model struct {
	Nodes  int
	Hidden bool // the history lacks the steps of nodes
}

// Follow returns a *Rejection for the first event that the model does not allow, or nil. The events
// belong to one lock, in the order in which they happened.
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

// A world is the state of the model.
type world struct {
	Model
	nodes   []node
	claims  map[string]*claim
	holding []*claim         // claims that clients may still rely on
	owners  map[int64]string // claim of each token
	top     int64            // highest granted token
}

type node struct {
	keys map[string]int64 // earliest expiry of each key, of a writer or of readers
	mute int64            // grants before this time are not votes
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
	floor int64         // highest token granted before the attempt began
	votes map[int]int64 // time of each node's vote that counts, or of its last renewal
	had   map[int]int64 // end of the time for which the client knows that a node has its key
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

// forget follows the memory of lock.pml.
func (w *world) forget(e Event) {
	n := &w.nodes[e.Node]
	n.mute = max(n.mute, e.Until)
	if e.Kind == Forgets {
		clear(n.keys)
	}
}

// grant follows a node's grant of a request for the lock. A late grant or a repair is not a vote.
func (w *world) grant(c *claim, e Event) Rule {
	n := &w.nodes[e.Node]
	for other, expires := range n.keys {
		switch {
		case other == e.Claim || c.reads && w.claims[other].reads:
		case e.At < expires:
			return KeyTaken
		default: // the other key must have expired
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

// renew follows a node's grant of an extension. During a quarantine it counts only if the client
// knows that the node had its key recently, because then no vote for another claim has counted
// there since.
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

// votesSince returns the number of nodes whose votes are from that time or later.
func (c *claim) votesSince(at int64) (n int) {
	for _, voted := range c.votes {
		if voted >= at {
			n++
		}
	}
	return n
}

// hold follows the success of an attempt.
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

// extend follows an extension that a quorum granted after its start, which is a Life before its
// deadline.
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

// alone checks promise P1 for a claim that a client has just begun to rely on.
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
