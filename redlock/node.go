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
)

var opNames = [...]string{OpAcquire: "acquire", OpExtend: "extend", OpRelease: "release", OpInspect: "inspect"}

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

	// MayHold says of an OpRelease that the node may hold the value, now or
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
}
