package fencemodel

// A node is one Redis server, as far as one name is concerned.
type node struct {
	lock    uint8 // 1 + the attempt that has it; 0: free
	counter uint8 // the highest token accepted
	legs    [MaxAttempts]leg
}

// A leg is the state between one attempt and one node.
type leg struct {
	run     request // the last that was run; kept for the network InOrder only
	answers answer  // that the client can still use, together
	counted uint8   // the counter, with IncrAndMax
}

// A request, in the order in which an attempt sends them.
type request uint8

const (
	noRequest request = iota
	acquire
	raise
	release
	number // is sent with acquire, with Plain
)

// An answer to a request, a bit each. Only these are of any use to the client.
type answer uint8

const (
	accepted answer = 1 << iota // the first proposal
	low                         // the lock, without the first proposal; with Plain no more than the latter
	took                        // the lock, with Plain
	raised                      // the second proposal is accepted

	useless answer = 0
)

// acquire is the script of the first round or, with Plain, SET NX.
func (n *node) acquire(m Model, attempt int, token uint8) answer {
	switch {
	case m.Fault == NoLock:
		return n.accept(m, token, token)
	case n.lock != 0:
		return useless // also if it is this attempt's: then this is a duplicate
	case m.Plain:
		n.lock = owner(attempt)
		return took
	case m.Fault == IncrAndMax:
		if int(n.counter) == m.Tokens {
			return useless // here the model ends, not the world
		}
		n.lock = owner(attempt)
		n.counter++
		return accepted
	case m.last(token) == n.counter && m.Fault != AcceptEqual && m.Fault != EqualGetsLock:
		return useless // late or twice, or an equal proposal of another attempt
	}
	n.lock = owner(attempt)
	return n.accept(m, token, token)
}

// raise is the script of the second round.
func (n *node) raise(m Model, attempt int, token uint8) answer {
	if n.lock != owner(attempt) && m.Fault != RaiseAnyones && m.Fault != NoLock {
		return useless
	}
	if n.accept(m, token, token) == accepted {
		return raised
	}
	return low
}

// accept sets the counter to the last number of the token's block, if the number that is compared is
// above it. A counter only rises, and a block is accepted only if all of it is above, so a node
// accepts no token twice, which is why P2 holds.
func (n *node) accept(m Model, token, compared uint8) answer {
	last := m.last(token)
	switch m.Fault {
	case CounterAtBeginning:
		last = token
	case CompareEnds:
		compared = last
	}
	if compared > n.counter || compared == n.counter && m.Fault == AcceptEqual {
		n.counter = last
		return accepted
	}
	if m.Fault == Overwrite {
		n.counter = last
	}
	return low
}

// release is the script of an attempt that failed, or whose holder is done.
func (n *node) release(m Model, attempt int, token uint8) {
	if n.lock == owner(attempt) {
		n.lock = 0
	}
	switch last := m.last(token); {
	case m.Fault == RollBack && n.counter == last && token > 0:
		n.counter = token - 1
	case m.Fault == RollBack, m.Fault == ReleaseForgets, m.Fault == IncrAndMax, m.Fault == CounterAtBeginning:
	case last > n.counter:
		n.counter = last
	}
}

// expire is the end of the lock's TTL.
func (n *node) expire(m Model) {
	n.lock = 0
	if m.Fault == CounterExpires {
		n.counter = 0
	}
}

func owner(attempt int) uint8 { return uint8(attempt) + 1 }
