package group

import (
	"errors"
	"fmt"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/long"
)

// Every order of what can happen between clients and groups is tried here, while the map changes. What a client may
// do by the stages that it has read is decided by the code (versions.judge, firstStage, leftBehind). What it sends
// is a model, because change.go and place.go send it to servers and wait: a lease is taken or lost in one step, and
// a raise to a retired stage arrives at any time, or never.
//
// A group keeps all stages that it has had. A client may have read each of them when it was there, in any order, or
// none of a group that was silent.

// A set is some of the groups A, B and C, the first in the lowest bit.
type set uint8

const (
	inA set = 1 << iota
	inB
	inC
)

func (s set) has(g int) bool         { return s>>g&1 != 0 }
func (s set) include(other set) bool { return other&^s == 0 }

// An atlas is what a world begins with. Versions of the map count from 1.
type atlas struct {
	in      [4]set // the groups of each version
	home    [4]set // the group that the name is in
	clients [][2]int
	fresh   bool   // no group has a stage; else version 1 is complete
	mistake string // a rule that clients do not keep
}

// A player is a client with its versions.
type player struct {
	*versions
	of    [2]set // the groups of both versions
	homes set
	index [3]int // of each group in versions; -1: none
}

// A lease is a kind of lock.
const (
	presence = iota // on the client's newest version, shared
	theName
	exclusive // on its base, to retire it
	leases
)

// A moment is one state of everything.
type moment struct {
	stages [3]stages
	held   [3][leases]set
	sent   [3]set // the client may have sent a raise that retires its base
	sealed [3]set // it has seen its base retired, under the exclusive lock
}

// Stages are those that a group has had, a bit each.
type stages uint16

func (s stages) now() stage { return stage(bits.Len16(uint16(s))) - 1 }

func (s *stages) raise(to stage) {
	if to > s.now() {
		*s |= 1 << to
	}
}

// A deed is one thing that happens between a client and a group.
type deed struct {
	what          string
	client, group int
	lease         int
}

type explorer struct {
	atlas
	players []*player
	proofs  map[proofKey]bool
}

type proofKey struct {
	client int
	stages [3]stages
}

func (a atlas) explorer() *explorer {
	x := &explorer{atlas: a, proofs: map[proofKey]bool{}}
	for _, c := range a.clients {
		base, newest := a.in[c[0]], a.in[c[1]]
		p := &player{of: [2]set{base, newest}, homes: a.home[c[0]] | a.home[c[1]]}
		var groups []Group
		for g := range 3 {
			if p.index[g] = -1; (base | newest).has(g) {
				p.index[g] = len(groups)
				groups = append(groups, Group{Name: string(rune('A' + g)), Joining: !base.has(g), Leaving: !newest.has(g)})
			}
		}
		v, err := newVersions(c[1], groups)
		if err != nil {
			panic(err)
		}
		v.base = c[0] // two versions may have the same groups
		p.versions = v
		switch a.mistake {
		case "locks where the newest has it":
			p.homes = a.home[c[1]]
		case "locks where the base has it":
			p.homes = a.home[c[0]]
		}
		x.players = append(x.players, p)
	}
	return x
}

func (x *explorer) start() (m moment) {
	for g := range m.stages {
		if m.stages[g] = 1; !x.fresh && x.in[1].has(g) {
			m.stages[g] = 1 << completed(1)
		}
	}
	return m
}

var errSilent = errors.New("silent")

// sees calls f with all that a client may have read of its groups, until f returns true.
func (x *explorer) sees(m *moment, i int, f func([]sight) bool) bool {
	p := x.players[i]
	seen := make([]sight, len(p.groups))
	var choose func(g int) bool
	choose = func(g int) bool {
		if g == 3 {
			return f(seen)
		}
		if p.index[g] < 0 {
			return choose(g + 1)
		}
		s := &seen[p.index[g]]
		if *s = (sight{err: errSilent}); choose(g + 1) {
			return true
		}
		for at := range stage(16) {
			if m.stages[g]>>at&1 != 0 {
				*s = sight{highest: at, majority: at, lowest: at, isWhole: true}
				if choose(g + 1) {
					return true
				}
			}
		}
		return false
	}
	return choose(0)
}

// isProven reports whether the client may have read that its base is complete.
func (x *explorer) isProven(m *moment, i int) bool {
	key := proofKey{i, m.stages}
	is, known := x.proofs[key]
	if !known {
		is = x.sees(m, i, func(seen []sight) bool { return x.judge(i, seen) })
		x.proofs[key] = is
	}
	return is
}

func (x *explorer) judge(i int, seen []sight) bool {
	p := x.players[i]
	isBehind := func(at stage) bool { return p.leftBehind(at) != nil }
	for _, s := range seen {
		switch {
		case x.mistake == "needs no proof",
			x.mistake == "is proven by what is over" && s.majority.proves(p.base),
			x.mistake == "is proven by a founding stage" && s.majority >= completed(p.base) && !isBehind(s.majority):
			return true
		}
	}
	is, err := p.judge(seen)
	if x.mistake == "is proven by complete stages only" {
		is = false
		for _, s := range seen {
			is = is || s.majority.proves(p.base) && !isBehind(s.majority)
		}
	}
	return is && err == nil
}

// mayFound reports whether the client may have read that its base is the first in all groups.
func (x *explorer) mayFound(m *moment, i int) bool {
	p := x.players[i]
	if x.mistake == "completes by any proof" && x.isProven(m, i) ||
		x.mistake == "founds one group" && x.anyHas(m, p.of[0], founding(p.base)) {
		return true
	}
	return x.sees(m, i, func(seen []sight) bool {
		for _, s := range seen {
			if !s.isWhole || s.lowest != founding(p.base) {
				return false
			}
		}
		return true
	})
}

func (x *explorer) anyHas(m *moment, groups set, at stage) bool {
	for g := range m.stages {
		if groups.has(g) && m.stages[g]>>at&1 != 0 {
			return true
		}
	}
	return false
}

// firsts are the stages that the client may give a group that has none.
func (x *explorer) firsts(m *moment, i int) (all stages) {
	p := x.players[i]
	if x.mistake == "skips founding" {
		return 1 << completed(p.base)
	}
	x.sees(m, i, func(seen []sight) bool {
		all |= 1 << p.firstStage(seen)
		return false
	})
	return all
}

// lock tells locks of one group apart: those on versions of the map, and 0 on the name.
func (x *explorer) lock(i, lease int) int {
	switch p := x.players[i]; {
	case lease == theName:
		return 0
	case lease == exclusive, x.mistake == "is present on the base":
		return p.base
	default:
		return p.newest
	}
}

func (x *explorer) isKept(m *moment, d deed) bool {
	for j := range x.players {
		for l := range leases {
			isShared := l == presence && d.lease == presence
			if x.lock(j, l) == x.lock(d.client, d.lease) && !isShared && m.held[j][l].has(d.group) {
				return true
			}
		}
	}
	return false
}

func (x *explorer) mayRetire(m *moment, i, g int) bool {
	p := x.players[i]
	return p.base < p.newest && p.of[0].has(g) && (x.mistake == "retires unproven" || x.isProven(m, i))
}

// wants reports whether the client would take the lease. It reads the stage behind its presence in the same step: a
// later answer allows no more, because stages rise.
func (x *explorer) wants(m *moment, d deed) bool {
	i, g := d.client, d.group
	p := x.players[i]
	isAlive := p.leftBehind(m.stages[g].now()) == nil
	switch d.lease {
	case exclusive:
		return x.mayRetire(m, i, g) && !m.sealed[i].has(g) && x.mistake != "retires without the lock"
	case presence:
		return p.homes.has(g) && (isAlive || x.mistake == "reads before it is present") && x.mistake != "needs no presence"
	}
	isPresent := m.held[i][presence].has(g) || x.mistake == "needs no presence" && isAlive
	return p.homes.has(g) && isPresent && x.isProven(m, i)
}

// isRetired reports whether the client knows its base to be retired in all groups.
func (x *explorer) isRetired(m *moment, i int) bool {
	p, sealed := x.players[i], m.sealed[i]
	if x.mistake == "takes a stage for a proof" || x.mistake == "retires without the lock" {
		for g := range m.stages {
			if m.stages[g].now() >= retired(p.base) {
				sealed |= 1 << g
			}
		}
	}
	return sealed.include(p.of[0]) || x.mistake == "completes when one group is retired" && sealed != 0
}

// does changes a moment by what a client does. If it cannot, nothing changes.
func (x *explorer) does(m *moment, d deed) {
	i, g := d.client, d.group
	p, bit, at := x.players[i], set(1)<<d.group, &m.stages[d.group]
	switch d.what {
	case "takes":
		if !m.held[i][d.lease].has(g) && x.wants(m, d) && !x.isKept(m, d) {
			m.held[i][d.lease] |= bit
			m.sent[i] |= bit & m.held[i][exclusive]
		}
	case "loses":
		m.held[i][d.lease] &^= bit
		if d.lease == presence && x.mistake != "outlives its presence" {
			m.held[i][theName] &^= bit
		}
	case "founds":
		if p.index[g] < 0 || at.now() != 0 && x.mistake != "founds by a raise" {
			return
		}
		first := founding(p.base)
		if x.mistake == "skips founding" {
			first = completed(p.base)
		}
		at.raise(first)
	case "gives the first":
		if p.index[g] >= 0 && at.now() == 0 {
			at.raise(x.firsts(m, i).now())
		}
	case "completes":
		if p.index[g] >= 0 && (x.mayFound(m, i) || x.anyHas(m, p.of[0], completed(p.base)) && at.now() == founding(p.base)) {
			at.raise(completed(p.base))
		}
	case "retires":
		if m.sent[i].has(g) || x.mistake == "retires without the lock" && x.mayRetire(m, i, g) {
			at.raise(x.over(p.base))
		}
	case "sees":
		if m.held[i][exclusive].has(g) && at.now() >= x.over(p.base) {
			m.sealed[i] |= bit
		}
	case "follows":
		if p.base < p.newest && p.of[1].has(g) && x.isRetired(m, i) {
			at.raise(completed(p.newest))
		}
	}
}

// over is the stage in which a version is retired.
func (x *explorer) over(version int) stage {
	if x.mistake == "retires by the next founding stage" {
		return founding(version + 1)
	}
	return retired(version)
}

var deeds = []string{"takes", "loses", "founds", "gives the first", "completes", "retires", "sees", "follows"}

// explore shows each new moment to look, until look says what is wrong with one.
func (x *explorer) explore(look func(*moment) string) explore.Result {
	return explore.Space[moment, moment, deed]{
		Start: x.start(),
		Key:   func(m *moment) moment { return *m },
		State: func(m moment) moment { return m },
		Steps: func(m *moment, do func(deed, *moment)) {
			for i := range x.players {
				for g := range m.stages {
					for _, what := range deeds {
						for l := range leases {
							if next := *m; l == 0 || what == "takes" || what == "loses" {
								d := deed{what, i, g, l}
								if x.does(&next, d); next != *m {
									do(d, &next)
								}
							}
						}
					}
				}
			}
		},
		Describe: func(d deed, _, after *moment) string {
			p := x.players[d.client]
			return fmt.Sprintf("client %d (%d, %d) %s in group %c (lease %d): stages %d %d %d", d.client, p.base, p.newest,
				d.what, 'A'+d.group, d.lease, after.stages[0].now(), after.stages[1].now(), after.stages[2].now())
		},
	}.Explore(func(_ deed, m *moment, isNew bool) string {
		if !isNew {
			return ""
		}
		return look(m)
	})
}

func (x *explorer) holds(m *moment, i int) bool {
	return m.held[i][theName].include(x.players[i].homes)
}

// broken says which clients hold the name together. It looks at what they believe.
func (x *explorer) broken(m *moment) string {
	for i := range x.players {
		for j := range i {
			if x.holds(m, i) && x.holds(m, j) {
				return fmt.Sprintf("clients %d and %d hold the name", j, i)
			}
		}
	}
	return ""
}

// Atlases, by what they are about.
var (
	growing   = atlas{in: [4]set{1: inB, 2: inA | inB}, home: [4]set{1: inB, 2: inA}}
	shrinking = atlas{in: [4]set{1: inA | inB, 2: inB}, home: [4]set{1: inA, 2: inB}}
	moving    = atlas{in: [4]set{1: inA | inB, 2: inA | inB}, home: [4]set{1: inA, 2: inB}}
	swapping  = atlas{in: [4]set{1: inA | inB, 2: inB | inC}, home: [4]set{1: inA, 2: inC}}
	leaving   = atlas{in: [4]set{1: inA, 2: inA, 3: inA | inB}, home: [4]set{1: inA, 2: inA, 3: inB}}
	arrived   = atlas{in: [4]set{1: inA, 2: inA | inB, 3: inA | inB}, home: [4]set{1: inA, 2: inB, 3: inB}}
	andBack   = atlas{in: [4]set{1: inA | inB, 2: inA | inB, 3: inA | inB}, home: [4]set{1: inA, 2: inB, 3: inA}}
	ring      = atlas{in: [4]set{1: inA | inB, 2: inB | inC, 3: inA | inC}, home: [4]set{1: inA, 2: inC, 3: inC}}
	disjoint  = atlas{in: [4]set{1: inA, 2: inB}, home: [4]set{1: inA, 2: inB}}

	one, oneTwo, two, twoThree, three = [2]int{1, 1}, [2]int{1, 2}, [2]int{2, 2}, [2]int{2, 3}, [2]int{3, 3}
)

func (a atlas) of(clients ...[2]int) atlas { a.clients = clients; return a }
func (a atlas) new() atlas                 { a.fresh = true; return a }

func TestOneClientHoldsInEveryOrderOfEvents(t *testing.T) {
	t.Parallel()
	for what, a := range map[string]atlas{
		"growing": growing.of(one, oneTwo, two), "growing, new": growing.of(one, oneTwo, two).new(),
		"shrinking": shrinking.of(one, oneTwo, two), "shrinking, new": shrinking.of(one, oneTwo, two).new(),
		"swapping": swapping.of(one, oneTwo, two), "swapping, new": swapping.of(one, oneTwo, two).new(),
		"two that change it": growing.of(oneTwo, oneTwo), "leaving": leaving.of(oneTwo, twoThree, three),
		"arrived": arrived.of(one, oneTwo, twoThree), "arrived, new": arrived.of(one, twoThree, three).new(),
		"ring, new": ring.of(one, twoThree, three).new(), "and back": andBack.of(oneTwo, twoThree, three),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if long.Race() && len(a.clients) > 2 {
				t.Skip("an exploration is one goroutine")
			}
			x := a.explorer()
			res := x.explore(x.broken)
			t.Logf("%d states, %d steps", res.States, res.Steps)
			require.Nil(t, res.Violation, "%v", res.Violation)
		})
	}
}

func TestEachRuleOfAChangeIsNeeded(t *testing.T) {
	t.Parallel()
	change, start := growing.of(one, oneTwo, two), growing.of(one, two).new()
	for mistake, a := range map[string]atlas{
		"needs no presence": change, "outlives its presence": change, "reads before it is present": change,
		"is present on the base":        leaving.of(oneTwo, twoThree, three),
		"locks where the newest has it": change, "locks where the base has it": change,
		"retires without the lock": change, "takes a stage for a proof": change, "needs no proof": change,
		"completes when one group is retired": shrinking.of(one, oneTwo, two),
		"retires unproven":                    arrived.of(one, twoThree, three),
		"is proven by what is over":           start,
		"is proven by a founding stage":       arrived.of(one, twoThree, three).new(),
		"skips founding":                      start, "founds by a raise": start, "founds one group": start,
		"completes by any proof":             shrinking.of(one, oneTwo, two).new(),
		"retires by the next founding stage": change,
		"has a map that shares no group":     disjoint.of(one, two),
	} {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			a.mistake = mistake
			x := a.explorer()
			res := x.explore(x.broken)
			require.NotNil(t, res.Violation, "not found in %d states", res.States)
			t.Logf("found in %d states: %v", res.States, res.Violation)
		})
	}
}

// TestAChangeComesToItsEnd: from each moment the second client, which has both versions, can complete the change.
// Then the third holds the name.
func TestAChangeComesToItsEnd(t *testing.T) {
	t.Parallel()
	for what, a := range map[string]atlas{"growing": growing, "shrinking": shrinking, "moving": moving} {
		x := a.of(one, oneTwo, two).new().explorer()
		require.Nil(t, x.explore(x.stuck).Violation, what)
	}
	x := moving.of(one, oneTwo, two).new()
	x.mistake = "is proven by complete stages only"
	res := x.explorer()
	require.NotNil(t, res.explore(res.stuck).Violation)
}

func (x *explorer) stuck(m *moment) string {
	next := *m
	next.held = [3][leases]set{}
	for i := 1; i <= 2; i++ {
		for _, d := range []deed{
			{what: "founds"}, {what: "completes"}, {what: "takes", lease: exclusive}, {what: "retires"}, {what: "sees"},
			{what: "follows"}, {what: "takes", lease: presence}, {what: "takes", lease: theName},
		} {
			for d.client, d.group = i, 0; d.group < 3; d.group++ {
				x.does(&next, d)
			}
		}
		if i == 1 {
			next.held[1] = [leases]set{}
		}
	}
	if x.holds(&next, 2) {
		return ""
	}
	return "the change is not completed"
}
