package redlock

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/trust"
)

// ops are the operations of a node by which a claim is put there, kept and taken back.
type ops struct {
	acquire, extend, release protocol.Op
}

var (
	plainOps  = &ops{protocol.OpAcquire, protocol.OpExtend, protocol.OpRelease}
	fencedOps = &ops{protocol.OpAcquireFenced, protocol.OpExtend, protocol.OpReleaseFenced}
	judgedOps = &ops{protocol.OpAcquireFenced, protocol.OpExtend, protocol.OpRelease} // Request.Judged
	sharedOps = &ops{protocol.OpShare, protocol.OpExtendShared, protocol.OpReleaseShared}
)

// A claim is what one attempt at a lock puts on the nodes, and what the lock is
// known by there if the attempt succeeds.
type claim struct {
	ops    *ops
	name   string
	key    string
	value  string
	block  *block           // of fencing tokens; nil without them
	shared *protocol.Shared // of a reader
	permit *permit          // nil but with several permits
}

// A block is the fencing tokens that an attempt proposes: one for each holder.
type block struct {
	counter string // the key on the nodes
	first   int64
	size    int64
	issued  int64 // how many holders have had; guarded by the session
}

// A permit is one of several.
type permit struct {
	line string // of callers in this process that wait for one
	key  string // of slot 0
	slot int
	of   int // how many there are
}

// withoutToken is c as it is known by to nodes that are not asked about its token.
func (c claim) withoutToken() claim {
	if c.block != nil {
		c.ops, c.block = plainOps, nil
	}
	return c
}

// request makes the request for op about the claim.
func (c claim) request(s *settings, op protocol.Op) protocol.Request {
	req := protocol.Request{
		Op: op, Key: c.key, Value: c.value, TTL: s.ttl, Timeout: s.timeout(), Shared: c.shared,
	}
	if b := c.block; b != nil && !op.Extends() && op != protocol.OpRelease {
		req.Counter, req.Token, req.Block, req.Slack = b.counter, b.first, b.size, trust.TokenSlack
		req.Judged = c.ops == judgedOps && op.Acquires()
	}
	if op.Acquires() || op.Extends() || op == protocol.OpRaise {
		req.Epoch = s.epoch
	}
	req.MayHold = op.Releases()
	return req
}

// repair makes the request that gives the claim back to a node which has lost it. A majority has accepted
// the token, so it is about the key alone.
func (c claim) repair(s *settings) protocol.Request {
	c = c.withoutToken()
	req := c.request(s, c.ops.acquire)
	if c.shared != nil {
		regardless := *c.shared
		regardless.Regardless = true // of writers that wait
		req.Shared = &regardless
	}
	return req
}

// newValue draws the value that marks a key as ours: 160 random bits, twice
// what keeps two owners apart for ever, in hexadecimal so that it can be read
// in redis-cli and by clients that take values for text.
func newValue() string {
	var raw [20]byte
	var text [2 * len(raw)]byte
	rand.Read(raw[:]) // never fails (crypto/rand, since Go 1.24)
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

// Reserved reports whether a lock with that key would stand in the way of the
// library's own keys on the servers, of any Locker with any prefix. Such keys are no
// locks, and Acquire refuses their names: those that begin as what a node keeps beside a lock
// does (redlock:fence: and the like), redlock:primary, and those that end with redlock:epoch or have
// redlock:map: in them, because they may stand behind a prefix.
func Reserved(key string) bool { return keys.Reserved(key) }

// slot is the number of the permit, zero for none.
func (c *claim) slot() int {
	if c.permit == nil {
		return 0
	}
	return c.permit.slot
}

// lineKey is the key of the line of a session: that of the acquisition which won it.
func (s *session) lineKey() string {
	if s.permit != nil {
		return s.permit.line
	}
	return s.key
}
