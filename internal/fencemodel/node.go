package fencemodel

// A node is one Redis server, as far as one name is concerned.
type node struct {
	lock    uint8 // 1 + the attempt that has it; 0: free
	counter uint8 // the highest token accepted
	legs    [MaxAttempts]leg
}

// A leg is the state between one attempt and one node.
type leg struct {
	// run is the last request that was run; kept for the network InOrder only.
	run request

	// Answers of the node that the client can still use.
	accepted bool  // the first proposal
	low      bool  // the lock, without the first proposal; with Plain no more than the latter
	took     bool  // the lock, with Plain
	raised   bool  // the second proposal
	counted  uint8 // the counter, with IncrAndMax
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

// An answer to a request. Only these are of any use to the client.
type answer uint8

const (
	useless answer = iota
	accepted
	low
	took
)

// acquire is the script of the first round.
func (n *node) acquire(m Model, attempt int, token uint8) answer {
	switch {
	case m.Fault == NoLock:
		return n.accept(m, token)
	case n.lock != 0:
		return useless // also if it is this attempt's: then this is a duplicate
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
	return n.accept(m, token)
}

// set is SET NX.
func (n *node) set(attempt int) answer {
	if n.lock != 0 {
		return useless
	}
	n.lock = owner(attempt)
	return took
}

// zadd is ZADD GT, which is given one number, and knows no lock.
func (n *node) zadd(m Model, token uint8) answer {
	if last := m.last(token); last > n.counter || last == n.counter && m.Fault == AcceptEqual {
		n.counter = last
		return accepted
	}
	return low
}

// raise is the script of the second round.
func (n *node) raise(m Model, attempt int, token uint8) answer {
	if n.lock != owner(attempt) && m.Fault != RaiseAnyones && m.Fault != NoLock {
		return useless
	}
	return n.accept(m, token)
}

// accept is common to both rounds. A counter only rises, and a block is accepted only if all of
// it is above, so a node accepts no token twice, which is why P2 holds.
func (n *node) accept(m Model, token uint8) answer {
	compared, last := token, m.last(token)
	switch m.Fault {
	case CounterAtBeginning:
		last = token
	case CompareEnds:
		compared = last
	}
	if compared > n.counter || token == n.counter && m.Fault == AcceptEqual {
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
