package guard

import (
	"fmt"
	"slices"
)

// Clone returns a copy of g that shares no mutable state with it. Its Effects have been taken.
// moved returns the Trial in the copy that corresponds to a Trial of g, because the owner copies
// its ballots (Trial.Clone).
func (g *Guard) Clone(moved func(*Trial) *Trial) *Guard {
	c := &Guard{terms: g.terms, nodes: slices.Clone(g.nodes), unsure: cloneParked(g.unsure, moved)}
	for i := range c.nodes {
		m := &c.nodes[i]
		m.ends, m.since, m.known, m.past = slices.Clone(m.ends), slices.Clone(m.since), slices.Clone(m.known), slices.Clone(m.past)
		m.parked = cloneParked(m.parked, moved)
	}
	return c
}

// Clone returns a copy of t that shares no mutable state with it. Votes in the copy belong to
// moved(t).
func (t *Trial) Clone(moved func(*Trial) *Trial) Trial {
	c := *t
	c.waiting = cloneParked(t.waiting, moved)
	return c
}

func cloneParked(all []vote, moved func(*Trial) *Trial) []vote {
	all = slices.Clone(all)
	for i := range all {
		all[i].trial = moved(all[i].trial)
	}
	return all
}

// AppendKey appends a key that differs between Guards with different futures, if their Effects have
// been taken. number returns a different number for each Trial.
func (g *Guard) AppendKey(b []byte, number func(*Trial) int) []byte {
	for i := range g.nodes {
		m := &g.nodes[i]
		b = fmt.Appendf(b, "%s %s %t %d %v %d ", m.text, m.run, m.record != nil, m.ends, m.birth, m.forgot)
		b = fmt.Appendf(b, "%v %d ", m.past, m.link)
		b = fmt.Appendf(b, "%d %v %v %d %d %d %v", m.since, m.known, m.time, m.readAt, m.failing, m.failed, m.asked)
		b = appendParked(b, m.parked, number)
	}
	return appendParked(b, g.unsure, number)
}

// AppendKey is like Guard.AppendKey, without the fields of the owner.
func (t *Trial) AppendKey(b []byte, number func(*Trial) int) []byte {
	b = fmt.Appendf(b, "%t", t.isOver)
	b = fmt.Appendf(b, " %d %d %d", t.granted, t.promised, t.heard)
	return appendParked(b, t.waiting, number)
}

func appendParked(b []byte, all []vote, number func(*Trial) int) []byte {
	for i := range all {
		p := &all[i]
		b = fmt.Appendf(b, "|%d %d %s %d %d %d", number(p.trial), p.node, p.reply.Run, p.reply.Life, p.heard, p.reply.Floor)
		b = fmt.Appendf(b, " %d %d %t %t %t", p.clock, p.floor, p.isEntry, p.hadKey, p.hasCompared)
	}
	return append(b, '\n')
}
