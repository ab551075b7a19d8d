package sharedmodel

import "fmt"

// A node is one Redis server, as far as one name is concerned. Of what expires it keeps the time
// that is left by its own clock.
type node struct {
	name      uint8 // what NAME holds: free, marker or a value
	nameFor   uint8
	members   [MaxClients]uint8 // of the readers' set: absent, expired, or expired plus the time left
	setFor    uint8
	intent    uint8 // free, or the value of a writer that waits
	intentFor uint8
	intentTry uint8 // of that writer; with IntentOfTry
	mute      uint8 // how long its grants do not count, by the clients' clocks
	gained    uint8 // how long its clock gains no further tick, by the clients' clocks
	legs      [MaxClients]leg
}

// What NAME holds, if it is no value.
const (
	free uint8 = iota
	marker
	firstValue
)

// value is what NAME holds while a client writes.
func value(client int) uint8 { return firstValue + uint8(client) }

// What the set holds of a member that is not alive.
const (
	absent  uint8 = iota
	expired       // not purged yet
)

// A leg is what is between one client and one node.
type leg struct {
	queue   queue // of requests on their way
	granted bool  // in the round under way, and it counts
	missing bool  // an extension found no claim of the client, which has not repaired that yet
}

// A request of a client to a node.
type request uint8

const (
	noRequest request = iota
	write
	rewrite // a writer's repair
	read
	reread // a reader's repair
	extendWrite
	extendRead
	downgrade
	undo    // of a writer's try that was not granted
	release // of a writer
	leave   // of a reader
)

// extends reports whether the request is one that may prolong a lock.
func (r request) extends() bool { return r == extendWrite || r == extendRead || r == downgrade }

// An answer to a request.
type answer uint8

const (
	refused answer = iota
	granted
	missing // refused, and the claim is not there
	readers // undone, and readers are in the way, or may have been
)

// A call is a request that a node runs.
type call struct {
	request
	client     int
	try        uint8
	everywhere bool // an undo sets the intent whatever it finds
}

// scripts are the server.
var scripts = [...]func(*node, *Model, call) answer{
	write: (*node).write, rewrite: (*node).write, read: (*node).read, reread: (*node).read,
	extendWrite: (*node).extendWrite, extendRead: (*node).extendRead, downgrade: (*node).downgrade,
	undo: (*node).undo, release: (*node).release, leave: (*node).leave,
}

func (n *node) run(m *Model, c call) answer { return scripts[c.request](n, m, c) }

// write is SET NX PX.
func (n *node) write(m *Model, c call) answer {
	if n.name != free {
		return refused
	}
	n.name, n.nameFor = value(c.client), uint8(m.TTL)
	return granted
}

// extendWrite prolongs the value.
func (n *node) extendWrite(m *Model, c call) answer {
	switch n.name {
	case value(c.client):
		n.nameFor = uint8(m.TTL)
		return granted
	case free:
		return missing
	}
	return refused
}

// release deletes the value and the writer's intent.
func (n *node) release(m *Model, c call) answer {
	n.deleteValue(c.client)
	if n.owns(m, c) && !m.has(IntentStays) {
		n.intent, n.intentFor, n.intentTry = free, 0, 0
	}
	return refused
}

func (n *node) deleteValue(client int) {
	if n.name == value(client) {
		n.name, n.nameFor = free, 0
	}
}

// undo deletes the value, and sets an intent where readers are in the writer's way.
func (n *node) undo(m *Model, c call) answer {
	was := n.name
	n.deleteValue(c.client)
	if m.IntentTTL == 0 {
		return refused
	}
	gone := was == free // those who refused the write
	if c.everywhere || n.owns(m, c) || n.name == marker || gone && m.Where != AtMarker {
		n.want(m, c)
	}
	if n.name == marker || gone || n.intent != free {
		return readers
	}
	return refused
}

// want sets the intent, or prolongs it.
func (n *node) want(m *Model, c call) {
	switch {
	case n.intent == free, n.owns(m, c), m.has(IntentReplaces):
		n.intent, n.intentFor = value(c.client), uint8(m.IntentTTL)
		if m.has(IntentOfTry) {
			n.intentTry = c.try
		}
	case m.has(IntentProlongs):
		n.intentFor = uint8(m.IntentTTL)
	}
}

// owns reports whether the intent is the caller's.
func (n *node) owns(m *Model, c call) bool {
	return n.intent == value(c.client) && (n.intentTry == c.try || !m.has(IntentOfTry))
}

// read adds a member.
func (n *node) read(m *Model, c call) answer {
	if n.name > marker && !m.has(ReadBesideWriter) {
		return refused
	}
	if n.intent != free && (c.request == read || m.has(RepairYields)) {
		return refused
	}
	n.add(m, c.client)
	return granted
}

// add gives a member a whole TTL.
func (n *node) add(m *Model, client int) {
	n.members[client] = expired + uint8(m.TTL)
	if m.has(OneExpiry) {
		for i, left := range n.members {
			if left != absent {
				n.members[i] = expired + uint8(m.TTL)
			}
		}
	}
	if n.name == free {
		n.name = marker
	}
	n.settle(m)
}

// settle purges the set, and has it and the marker expire with the last member. Where none
// is left it deletes both.
func (n *node) settle(m *Model) {
	first, last := uint8(MaxTTL), uint8(0)
	for i, left := range n.members {
		if left <= expired {
			n.members[i] = absent
			continue
		}
		first, last = min(first, left-expired), max(last, left-expired)
	}
	n.setFor = last
	switch {
	case n.name == marker && m.has(FirstExpiry):
		n.nameFor = min(first, last)
	case n.name == marker, last == 0 && m.has(LeaveUnseen):
		n.nameFor = last
	}
	if n.nameFor == 0 {
		n.name = free
	}
}

// extendRead prolongs a member. It never adds one.
func (n *node) extendRead(m *Model, c call) answer {
	least := expired + 1
	switch {
	case m.has(ExtendAdds):
		least = absent
	case m.has(ExtendExpired):
		least = expired
	}
	switch {
	case n.name == value(c.client) && m.has(DowngradeAgain):
		return n.downgrade(m, c)
	case n.name > marker && !m.has(ExtendUnmarked):
		return refused
	case n.name == free && !m.has(ExtendAdds) && !m.has(ExtendUnmarked):
		return missing
	case n.members[c.client] >= least:
		n.add(m, c.client)
	case !m.has(ExtendBlindly):
		return missing
	}
	return granted
}

// downgrade makes the value a member.
func (n *node) downgrade(m *Model, c call) answer {
	if n.name != value(c.client) {
		return missing
	}
	n.name, n.nameFor = marker, uint8(m.TTL)
	if !m.has(DowngradeLoses) {
		n.add(m, c.client)
	}
	return granted
}

// leave removes the member, or the value where a downgrade has not been run.
func (n *node) leave(m *Model, c call) answer {
	if !m.has(LeaveMember) {
		n.deleteValue(c.client)
	}
	if n.members[c.client] == absent {
		return refused
	}
	n.members[c.client] = absent
	n.settle(m)
	if m.has(LeaveDeletes) && n.name == marker {
		n.name, n.nameFor = free, 0
	}
	return refused
}

// advance is a tick of the node's clock.
func (n *node) advance() {
	if runsOut(&n.nameFor) {
		n.name = free
	}
	for i, left := range n.members {
		if left > expired {
			n.members[i]--
		}
	}
	if runsOut(&n.setFor) {
		n.members = [MaxClients]uint8{}
	}
	if runsOut(&n.intentFor) {
		n.intent, n.intentTry = free, 0
	}
}

// runsOut takes a tick from what is left, and reports whether it was the last.
func runsOut(left *uint8) bool {
	if *left == 0 {
		return false
	}
	*left--
	return *left == 0
}

// lose empties the node.
func (n *node) lose() { *n = node{mute: n.mute, gained: n.gained, legs: n.legs} }

// isEmpty reports whether no key is left.
func (n *node) isEmpty() bool {
	return n.name == free && n.members == [MaxClients]uint8{} && n.setFor == 0 && n.intent == free
}

// holds reports whether the node holds a client's claim, for as long as the client believes it.
func (n *node) holds(i int, c *client) bool {
	return n.name == value(i) && n.nameFor >= c.valid || n.members[i] >= expired+c.valid
}

// String describes the keys.
func (n *node) String() string {
	text := "free"
	switch {
	case n.name == marker:
		text = fmt.Sprintf("shared for %d", n.nameFor)
	case n.name != free:
		text = fmt.Sprintf("%s's for %d", name(int(n.name-firstValue)), n.nameFor)
	}
	for i, left := range n.members {
		if left != absent {
			text += fmt.Sprintf(", reader %s for %d", name(i), left-expired)
		}
	}
	if n.intent != free {
		text += fmt.Sprintf(", intent of %s for %d", name(int(n.intent-firstValue)), n.intentFor)
	}
	if n.mute > 0 {
		text += ", mute"
	}
	return text
}
