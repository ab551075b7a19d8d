package redlock

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
func (l *Locker) newClaim(s *settings, name, key string) claim {
	c := claim{name: name, key: key, value: newValue()}
	if s.fenced {
		c.counter, c.token = s.prefix+counterKey+name, l.tokens.propose(s.wall())
	}
	return c
}

// request makes the request for op. With a fencing token, acquisitions and
// releases are of the fenced kind.
func (l *Locker) request(s *settings, op Op, c claim) Request {
	req := Request{Op: op, Key: c.key, Value: c.value, TTL: s.ttl, Timeout: s.timeout()}
	if c.counter != "" && op != OpExtend {
		req.Counter, req.Token, req.Slack = c.counter, c.token, l.tokenSlack()
		switch op {
		case OpAcquire:
			req.Op = OpAcquireFenced
		case OpRelease:
			req.Op = OpReleaseFenced
		}
	}
	if op == OpAcquire || op == OpRaise {
		req.Epoch = s.epoch
	}
	req.MayHold = op == OpRelease
	return req
}
