package changemodel

import "slices"

// look has client i read the record of server n, and draw its conclusions.
func (s *state) look(m *Model, i, n int) {
	c, v := &s.clients[i], &s.servers[n]
	alive := v.lists &^ s.below(v.lists, int(c.force))
	if alive&^c.known != 0 {
		if s.top(c.known|alive) != s.top(c.known) {
			c.carry = 0
		}
		c.known |= alive
		c.seen, c.fresh = 0, 0
	}
	c.seen.set(n, v.id)
	c.fresh &^= 1 << n
	if v.lists == 0 {
		c.fresh |= 1 << n
	} else {
		// The lowest list of a record is in force, or was: who struck out those below it knew.
		s.inForce(i, s.bottom(v.lists))
		top := s.top(c.known)
		if v.lists.has(top) && v.age >= m.wait() {
			c.carry.set(n, v.id)
		}
		if s.isInForce(m, i, top) {
			s.inForce(i, top)
		}
	}
	s.tidy(i)
}

// tidy has client i forget what decides nothing, so that fewer states differ.
func (s *state) tidy(i int) {
	c := &s.clients[i]
	top := s.top(c.known)
	if top == int(c.force) {
		c.carry = 0
	}
	for n := range s.servers {
		id := c.seen.at(n)
		differs := id != s.lists[top].members().at(n)
		for place, l := range s.lists {
			differs = differs || c.known.has(place) && l.members().at(n) != 0 && l.members().at(n) != id
		}
		if !differs {
			c.seen.set(n, 0)
			c.fresh &^= 1 << n
		}
	}
}

// inForce has client i forget the lists below one that is in force, or was.
func (s *state) inForce(i, place int) {
	c := &s.clients[i]
	if s.lists[place] > s.lists[c.force] {
		c.force = uint8(place)
		c.known &^= s.below(c.known, place)
		c.standing &^= s.below(c.standing, place)
	}
}

// isInForce reports whether, by what client i has seen, no list below its highest one can make a
// majority that does not see the highest one, nor has made one that is still believed.
func (s *state) isInForce(m *Model, i, top int) bool {
	c := &s.clients[i]
	lower := s.below(c.known, top)
	if m.Mistakes.has(LowestAlone) && lower != 0 {
		lower = 1 << s.bottom(lower)
	}
	for place := range s.lists {
		if lower.has(place) && !s.isSealed(m, i, place) {
			return false
		}
	}
	return true
}

// isSealed reports whether no quorum of the list at a place is left that does not know the highest
// one, by what client i has seen.
func (s *state) isSealed(m *Model, i, place int) bool {
	c, of := &s.clients[i], m.Clients[i]
	members := s.lists[place].members()
	carry, gone := 0, 0
	for n := range s.servers {
		switch id := members.at(n); {
		case id == 0:
		case id == c.carry.at(n):
			carry++
		case c.seen.at(n) != 0 && c.seen.at(n) != id, of.Moved.has(n), m.Mistakes.has(UnknownIsGone) && c.seen.at(n) == 0:
			gone++
		}
	}
	need := s.lists[place].majority()
	if m.Mistakes.has(OneLess) {
		need--
	}
	if m.Mistakes.has(GoneCarries) && carry+gone >= need && place > 0 || carry >= need && place > 0 {
		return true
	}
	top := s.lists[s.top(c.known)]
	all := top.members().count(top.members())
	if m.Mistakes.has(FirstByMajority) && place == 0 || m.Mistakes.has(GoneSuffices) && place > 0 {
		all = top.majority()
	}
	return carry+gone == members.count(members) && top.members().count(c.carry) >= all
}

// propose has client i make a list of the servers that it wants. Those that are not in the highest
// list at this address must have answered that they have no record. Where nothing has a record,
// the first list is that of the client's nodes.
func (s *state) propose(m *Model, i int) bool {
	c, of := &s.clients[i], m.Clients[i]
	top := s.top(c.known)
	wants := of.last()
	if top == 0 {
		if c.fresh != of.reach() {
			return false
		}
		wants = of.Nodes
	}
	var members ids
	for n := range s.servers {
		if !wants.has(n) {
			continue
		}
		id := s.lists[top].members().at(n)
		if seen := c.seen.at(n); seen != 0 && seen != id {
			if !c.fresh.has(n) && !m.Mistakes.has(TakesBack) {
				return false
			}
			id = seen
		}
		if id == 0 {
			return false
		}
		members.set(n, id)
	}
	if members == s.lists[top].members() {
		return false
	}
	proposed := newList(members, s.lists[top])
	place := slices.Index(s.lists[:s.count], proposed)
	if place < 0 {
		if int(s.count) == m.lists() {
			return false
		}
		place = int(s.count)
		s.lists[place] = proposed
		s.count++
	}
	c.known |= 1 << place
	if top == 0 {
		c.known |= 1
	}
	c.carry = 0
	return true
}

// lists is how many there may be.
func (m *Model) lists() int {
	if m.Begins == 0 {
		return m.Lists + 1
	}
	return m.Lists + 2
}

// add has client i put the highest list that it knows on server n, which it has just looked at, so
// that none there is higher. A server without a record is given the lists below it as well.
func (s *state) add(m *Model, i, n int) bool {
	c, v := &s.clients[i], &s.servers[n]
	top := s.top(c.known)
	if top == 0 || v.lists.has(top) {
		return false
	}
	switch {
	case v.lists == 0:
		v.lists = c.known
		if !m.Mistakes.has(NeverMute) {
			v.mute = uint8(m.TTL)
		}
	case m.Mistakes.has(Replaces):
		v.lists = 1 << s.bottom(v.lists)
	}
	v.lists |= 1 << top
	v.age = 0
	return true
}

// strike has client i take the lists from the record of server n that are below the one in force,
// if that stands there.
func (s *state) strike(m *Model, i, n int) bool {
	c, v := &s.clients[i], &s.servers[n]
	dead := s.below(v.lists, int(c.force))
	if dead == 0 || dead == v.lists || m.Mistakes.has(NeverStrikes) ||
		!v.lists.has(int(c.force)) && !m.Mistakes.has(StrikesBlindly) {
		return false
	}
	v.lists &^= dead
	if v.lists&(v.lists-1) == 0 {
		v.age = 0
	}
	return true
}

// ask has server n run the request of client i, and tell its record behind it. The first request
// begins a round: one that began earlier would be believed for less. Nor does a lock matter on a
// server that the other client does not reach.
func (s *state) ask(m *Model, i, n int) bool {
	c, v := &s.clients[i], &s.servers[n]
	if int(c.valid) == m.TTL || c.votes.at(n) == v.id {
		return false
	}
	if c.round == 0 {
		c.round = uint8(m.TTL)
		c.blind = m.Mistakes.has(BlindExtensions) && c.valid > 0
		if !c.blind {
			c.standing = 0
		}
	}
	isFree := v.owner == 0 || v.owner == uint8(i)+1
	if isFree && m.Clients[1-i].reach().has(n) {
		v.owner, v.left = uint8(i)+1, uint8(m.TTL)
	}
	id := s.lists[s.top(c.known)].members().at(n)
	if !c.blind {
		s.look(m, i, n)
		id = v.id
	}
	if !isFree || v.lists == 0 || v.mute > 0 {
		return true
	}
	c.votes.set(n, id)
	if !c.blind {
		c.standing |= v.lists &^ s.below(v.lists, int(c.force))
	}
	if s.isGranted(m, i) {
		c.valid = max(c.valid, c.round)
		c.endRound(m)
	}
	return true
}

func (c *client) endRound(m *Model) {
	c.round, c.votes, c.blind = 0, 0, false
	if !m.Mistakes.has(BlindExtensions) {
		c.standing = 0
	}
}

// isGranted reports whether the votes of the round are a majority of each list that stands in the
// records of those that voted, and of the one that the client knows to be in force. Those below
// it count no more. A client with a next list needs a majority of each of its own lists as well.
func (s *state) isGranted(m *Model, i int) bool {
	c, of := &s.clients[i], m.Clients[i]
	own := c.votes.majorityOf(of.Nodes) && c.votes.majorityOf(of.last())
	switch {
	case m.Mistakes.has(OwnMajority):
		return own
	case of.Next != 0 && !own && !m.Mistakes.has(RecordsAlone):
		return false
	}
	need := c.standing
	if c.force > 0 {
		need |= 1 << c.force
	}
	if m.Mistakes.has(NewestAlone) {
		need = 1 << s.top(need)
	}
	for place, l := range s.lists {
		if need.has(place) && l.members().count(c.votes) < l.majority() {
			return false
		}
	}
	return need != 0
}
