package redlock

import "time"

// A Node is one independent Redis server, as the algorithm sees it. Package
// pool has the real ones; tests have others.
//
// A Node must not run a request before one that was submitted to it earlier:
// a release must never overtake the acquisition that it undoes.
type Node interface {
	// String names the node in errors and events. It never holds a secret, and
	// no two nodes of one Locker share it.
	String() string

	// Submit queues req and returns at once, whatever the server is doing.
	// After nil, to gets exactly one reply with this slot number: later, from
	// another goroutine, and perhaps long after req.Timeout. After an error
	// the request was certainly not sent and nothing follows.
	//
	// The node may read req until it has replied, and never changes it but for
	// Memo.
	Submit(req *Request, slot int, to Receiver) error

	// Close gives back all the node holds. Requests without a reply get one.
	Close() error
}

// A Watchable is a Node that can hint at the moment when a lock may be free, so
// that waiters need not poll.
type Watchable interface {
	Node

	// Watch has hint called whenever the key that an OpWatch asked about may have
	// changed since, until stop is called. A hint is no more than that: it may be
	// lost, late, doubled or wrong, and it may come from any change of the key, or
	// because the node begins to be able to give hints. It comes once after each
	// OpWatch; hint must not block.
	//
	// What this costs the server and the network lasts from the first Watch until
	// soon after the last stop. stop may be called twice; a hint that is under way
	// may still arrive.
	Watch(key string, hint func()) (stop func())
}

// A Receiver takes replies. Receive must not block.
type Receiver interface {
	Receive(slot int, reply Reply)
}

// Op is what a request asks of a node.
type Op uint8

// The operations. Each is atomic on its node.
const (
	OpAcquire Op = iota + 1 // set key to value for TTL, if there is no such key
	OpExtend                // let key expire in TTL from now, if it holds value
	OpRelease               // delete key, if it holds value
	OpInspect               // tell key's value and remaining TTL

	// With a fencing token: see fence.go.
	OpAcquireFenced // as OpAcquire; accept Token if it is above what the node accepted before
	OpRaise         // accept Token likewise, if key holds value
	OpReleaseFenced // as OpRelease; let no acquisition with a token up to Token be accepted any more

	// For waiting: see wait.go. They change no lock.
	OpWatch // tell the remaining TTL of key: granted if there is no such key; and have Watch hint at its next change
	OpQueue // take, keep or give back Ticket's place in the queue key: granted if it is the first; see Ticket

	OpAdmit // tell the epoch record, or write a new one and begin a quarantine: see witness.go
)

var opNames = [...]string{
	OpAcquire: "acquire", OpExtend: "extend", OpRelease: "release", OpInspect: "inspect",
	OpAcquireFenced: "acquire", OpRaise: "raise", OpReleaseFenced: "release", OpWatch: "watch", OpQueue: "queue", OpAdmit: "admit",
}

func (op Op) String() string { return opNames[op] }

// A Request is one operation, asked of all nodes alike.
type Request struct {
	Op    Op
	Key   string
	Value string
	TTL   time.Duration // whole milliseconds; how long the key may live

	// Timeout is how long the asker waits, counted from Submit. A request that
	// a node has not begun to send by then must not be sent any more: nobody
	// would learn of its effect. It fails instead.
	Timeout time.Duration

	// Token and Counter are a fencing token, and the key under which a node keeps
	// the highest that it has accepted for this lock. Slack is how far a token
	// may be from the node's clock, either way.
	Token   int64
	Counter string
	Slack   time.Duration

	// Epoch is the key of the node's epoch record. Where it is set, a Granted or
	// Refused reply must carry Run and Life, and Life must have been read after
	// the request was run.
	Epoch string
	Admit *Admission // of an OpAdmit, whose TTL is the longest of any lock

	Ticket *Ticket // of an OpQueue

	// MayHold says of a release that the node may hold the value, now or
	// once an earlier request has run. Such a release is not given up when it
	// fails or its time is out: after its reply the node retries it in the
	// background until the key must have expired, unless that is in vain (a key
	// of another type, a missing permission).
	MayHold bool

	// Memo belongs to the implementation of Node. A Request is submitted to
	// several nodes of a Locker, one after the other, so the first may leave its
	// encoded form here for the rest.
	Memo any
}

// Releases reports whether the request is a release of either kind.
func (r *Request) Releases() bool { return r.Op == OpRelease || r.Op == OpReleaseFenced }

// An Admission is what an OpAdmit has to write if there is no record, or one of
// another process.
type Admission struct {
	Generation string        // random: tells this record from those before
	Life       time.Duration // of the record: years, and partly random
	Quarantine string        // the key that exists while the node is in quarantine
	Nodes      int           // how many nodes make up the quorum
	Known      time.Duration // the longest TTL that locks may have had until now
}

// A Ticket is a place in a node's queue of those who wait for a lock. The node
// orders tickets by when they began to wait, which it reckons from Waited by its
// own clock when it first sees the ticket. A ticket that has not been seen for
// Life is dropped when it is in another's way. Whoever becomes the first because
// another has gone is hinted at, if it watches the key that is the queue's, a colon and
// its ID.
type Ticket struct {
	ID     string
	Waited time.Duration
	Life   time.Duration
	Leave  bool // give the place back
}

// An Epoch is what a node's epoch record says.
type Epoch struct {
	Generation string
	Nodes      int
	MaxTTL     time.Duration // the longest of any lock
	Known      time.Duration // the same before this raised it; zero if there was no record
	Quarantine time.Duration // left by the server's clock; zero if it is over
	Clock      time.Duration // the server's clock, since 1970
	Found      time.Duration // what the record had left to live before this changed it; zero if there was none
}

// Outcome is the kind of a reply.
type Outcome uint8

const (
	// Granted: the node did what was asked.
	Granted Outcome = iota + 1
	// Refused: the node answered and did nothing; the key holds another value,
	// or none where one was expected.
	Refused
	// Failed: the node certainly did nothing.
	Failed
	// Unknown: the request was sent and no answer came. The node may have run
	// it, or may still run it.
	Unknown
)

var outcomeNames = [...]string{Granted: "granted", Refused: "refused", Failed: "failed", Unknown: "unknown"}

func (o Outcome) String() string { return outcomeNames[o] }

// NoTTL is the remaining TTL of a key that never expires.
const NoTTL time.Duration = -1

// A Reply is a node's answer to one request.
type Reply struct {
	Outcome Outcome
	Value   string        // OpInspect: the value of the key, empty if there is none
	TTL     time.Duration // OpInspect and Refused: what is left of the key; NoTTL; zero if it is gone or was not told
	Err     error         // Failed and Unknown: why

	// Floor is set in a Granted reply to a fenced acquisition, or to OpRaise,
	// if the key is ours but the token was not accepted: one that will be is
	// above Floor, and near to it.
	Floor int64

	Run   string        // tells the server's process from every other one; empty if it is not known
	Life  time.Duration // what the epoch record has left to live; zero if there is none
	Epoch *Epoch        // OpAdmit
}
