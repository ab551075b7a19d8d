package redlock

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/protocol"
)

// A claim is what one attempt at a lock puts on the nodes, and what the lock is
// known by there if the attempt succeeds.
type claim struct {
	name    string
	key     string
	value   string
	counter string // the key of the fencing tokens; empty without them
	token   int64
}

// newClaim draws the value of a new attempt, and proposes its fencing token.
func (a *acquisition) newClaim() claim {
	c := claim{name: a.name, key: a.key, value: newValue()}
	if s := a.settings; s.fenced {
		c.counter, c.token = s.prefix+counterKey+a.name, a.locker.tokens.propose(s.wall())
	}
	return c
}

// request makes the request for op. With a fencing token, acquisitions and
// releases are of the fenced kind.
func (l *Locker) request(s *settings, op protocol.Op, c claim) protocol.Request {
	req := protocol.Request{Op: op, Key: c.key, Value: c.value, TTL: s.ttl, Timeout: s.timeout()}
	if c.counter != "" && op != protocol.OpExtend {
		req.Counter, req.Token, req.Slack = c.counter, c.token, tokenSlack
		switch op {
		case protocol.OpAcquire:
			req.Op = protocol.OpAcquireFenced
		case protocol.OpRelease:
			req.Op = protocol.OpReleaseFenced
		}
	}
	if op == protocol.OpAcquire || op == protocol.OpRaise {
		req.Epoch = s.epoch
	}
	req.MayHold = op == protocol.OpRelease
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

// The keys on a node besides the locks' own. Each has the Locker's prefix, so
// that sets of clients with different prefixes do not meddle with each other.
const (
	epochKey   = record.Key
	counterKey = "redlock:fence:" // and the lock's name
	queueKey   = "redlock:queue:" // and the lock's name, and perhaps more
)

// Reserved reports whether a lock with that key would stand in the way of the
// library's own keys on the servers, of any Locker with any prefix. Such keys are no
// locks, and Acquire refuses their names.
func Reserved(key string) bool {
	return strings.HasSuffix(key, epochKey) ||
		strings.Contains(key, counterKey) || strings.Contains(key, queueKey)
}
