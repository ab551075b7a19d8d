package changemodel

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Clients of the tests, by the servers that they use.
var (
	one    = Client{Nodes: Of(1)}
	three  = Client{Nodes: Of(1, 2, 3)}
	third  = Client{Nodes: Of(1, 2, 4)} // another server 3
	fourth = Client{Nodes: Of(1, 2, 5)} // yet another one
	both   = Client{Nodes: Of(1, 4, 5)} // other servers 2 and 3
	moving = Client{Nodes: Of(1), Next: Of(2)}
)

// The models, by what they are about. The first client is that of the old servers.
var (
	replacing  = world(Of(1, 2, 3), three, third)
	bothSlots  = world(Of(1, 2, 3), three, both)
	forgetting = world(Of(1, 2, 3), three, three).forgets(1)
	growing    = world(Of(1), one, three)
	growingOut = world(Of(1), one, three).forgets(1)
	extending  = world(Of(1), one, three).ttl(2)
	shrinking  = world(Of(1, 2, 3), three, one)
	jointOld   = world(Of(1), one, moving).forgets(1).proposes(2)
	jointNew   = world(Of(2), moving, Client{Nodes: Of(2)}).forgets(2).proposes(2)
	returning  = world(Of(1), one, three).proposes(2).restarts(1)
	starting   = world(0, one, three).proposes(2)

	models = []Model{replacing, bothSlots, forgetting, growing, growingOut, extending, shrinking, returning, starting,
		jointOld, jointNew}

	// large adds what takes minutes.
	large = []Model{
		world(Of(1), three, both).proposes(2),
		world(0, three, third).proposes(2),
		world(Of(1, 2, 3), third, fourth).proposes(2),
		world(Of(1, 2, 3), three, Client{Nodes: Of(1, 2, 3, 4, 5)}),
		world(Of(1, 2, 3), three, third).forgets(1),
		world(Of(1, 2, 3), three, third).ttl(2),
		world(Of(1, 2, 3), three, three).forgets(2).proposes(2),
		world(Of(1), one, moving).forgets(2).proposes(2),
	}
)

func world(begins Set, a, b Client) Model {
	return Model{Begins: begins, Clients: [2]Client{a, b}, TTL: 1, Lists: 1}
}

func (m Model) forgets(times int) Model  { m.Forgets = times; return m }
func (m Model) restarts(times int) Model { m.Restarts = times; return m }
func (m Model) proposes(lists int) Model { m.Lists = lists; return m }
func (m Model) ttl(ticks int) Model      { m.TTL = ticks; return m }

func (m Model) with(mistakes Mistake) Model { m.Mistakes = mistakes; return m }

func TestOneClientHoldsThroughAChange(t *testing.T) {
	t.Parallel()
	for _, m := range models {
		holds(t, m)
	}
	if *everything {
		for _, m := range large {
			holds(t, m)
		}
	}
}

// What is proposed decides who can have locks, and not whether two have one. To strike out lists
// that are dead spares later clients the proof; where that is done harms in no world as small as
// this since servers that forgot have no vote for a while.
func TestExclusionDoesNotNeedEveryRule(t *testing.T) {
	t.Parallel()
	holds(t, shrinking.with(TakesBack))
	holds(t, growingOut.with(StrikesBlindly))
	holds(t, replacing.with(NeverStrikes))
}

func TestMistakesBreakExclusion(t *testing.T) {
	t.Parallel()
	for mistake, m := range map[Mistake]Model{
		OwnMajority:     replacing,
		NewestAlone:     replacing,
		BlindExtensions: extending,
		OneLess:         replacing,
		BriefWait:       extending,
		SameID:          growingOut,
		NeverMute:       jointOld,
		GoneCarries:     growingOut,
		GoneSuffices:    growingOut,
		UnknownIsGone:   bothSlots,
		RecordsAlone:    jointNew,
		Replaces:        returning,
		LowestAlone:     returning,
		FirstByMajority: starting,
	} {
		t.Run(mistake.String(), func(t *testing.T) {
			t.Parallel()
			breaks(t, m.with(mistake))
		})
	}
}

// What no rule can see, because nothing that both clients ask knows of both.
func TestWhatTheProtocolCannotSee(t *testing.T) {
	t.Parallel()
	t.Run("a whole set is replaced in one step", func(t *testing.T) {
		breaks(t, world(Of(1), one, Client{Nodes: Of(2)}))
	})
	t.Run("the servers that two lists share forget, and one has a majority without them", func(t *testing.T) {
		breaks(t, shrinking.forgets(1))
	})
	t.Run("the names of a majority point to other servers, and the old ones live on", func(t *testing.T) {
		m := bothSlots
		m.Clients[1].Moved = Of(2, 3)
		breaks(t, m)
		m.Clients[1].Moved = Of(2)
		holds(t, m)
	})
}

func holds(t *testing.T, m Model) {
	t.Helper()
	if short() && m.isLarge() {
		return
	}
	res := m.Explore()
	t.Logf("%s: %d states, %d steps", m, res.States, res.Steps)
	if v := res.Violation; v != nil {
		t.Errorf("%s: %s", m, v)
	}
}

func breaks(t *testing.T, m Model) {
	t.Helper()
	res := m.Explore()
	require.NotNil(t, res.Violation, "%s: not found in %d states", m, res.States)
	t.Logf("%s: found in %d states, %d steps: %s", m, res.States, res.Steps, res.Violation)
}

// isLarge reports whether it takes seconds to explore.
func (m *Model) isLarge() bool {
	return m.Forgets > 0 || m.Restarts > 0 || m.Clients[1].reach()>>3 != 0
}

func (m Model) String() string {
	return fmt.Sprintf("begins %s, clients %s, TTL %d, forgets %d, restarts %d, lists %d, mistake: %s",
		m.Begins, m.Clients, m.TTL, m.Forgets, m.Restarts, m.Lists, m.Mistakes)
}

func (c Client) String() string {
	if c.Next == 0 {
		return c.Nodes.String()
	}
	return c.Nodes.String() + " and next " + c.Next.String()
}

func (set Set) String() string {
	text := ""
	for n := range MaxServers {
		if set.has(n) {
			text += string(rune('1' + n))
		}
	}
	return "{" + text + "}"
}

// A client that is about to have the last word gets a lock within some TTLs, from each state there
// is, while the other is silent and all servers answer. So no step of a change is a dead end. One
// that shares too little with the list in force gets none.
func TestAChangeComesToItsEnd(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		model   Model
		clients []int
	}{
		{replacing, []int{0, 1}}, // the old one goes on with the two servers that both have
		{forgetting, []int{0}},
		{growing, []int{1}},
		{shrinking, []int{0}}, // the new one cannot ask a majority of the old servers
		{world(Of(1, 2, 3), Client{Nodes: Of(1, 2, 3), Next: Of(1)}, one), []int{0}},
		{world(Of(1), moving, Client{Nodes: Of(2)}), []int{0}},
	} {
		m := of.model
		if short() && m.isLarge() {
			continue
		}
		m.space().Explore(func(_ step, s *state, isNew bool) string {
			for _, i := range of.clients {
				if isNew && !m.settles(*s, i) {
					t.Errorf("%s: %s gets no lock: %s", m, name(i), s.record(0))
					return "stuck"
				}
			}
			return ""
		})
	}
	require.False(t, bothSlots.settles(bothSlots.start(), 1), "with one server of three")
}

// settles reports whether client i holds after it alone has done for some TTLs what it can.
func (m *Model) settles(s state, i int) bool {
	for range 4 * m.TTL {
		for action := looks; action <= strikes; action++ {
			for n := range s.servers {
				if next := s; m.Clients[i].reach().has(n) && next.does(m, i, n, action) {
					s = next
				}
			}
		}
		s.tick(m)
		for n := range s.servers {
			if m.Clients[i].reach().has(n) {
				s.ask(m, i, n)
			}
		}
		if s.clients[i].valid > 0 {
			return true
		}
	}
	return false
}
