package mapmodel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
)

// Clients of the tests, by their maps.
var (
	one      = Client{1, 1}
	oneTwo   = Client{1, 2}
	two      = Client{2, 2}
	twoThree = Client{2, 3}
	three    = Client{3, 3}
)

// The maps, by what they are about.
var (
	growing   = maps(Map{B, B}, Map{A | B, A})
	shrinking = maps(Map{A | B, A}, Map{B, B})
	swapping  = maps(Map{A | B, A}, Map{B | C, C})
	staying   = maps(Map{A, A}, Map{A | B, A})
	moving    = maps(Map{A | B, A}, Map{A | B, B})
	disjoint  = maps(Map{A, A}, Map{B, B})

	leaving = maps(Map{A, A}, Map{A, A}, Map{A | B, B})     // with the third map
	arrived = maps(Map{A, A}, Map{A | B, B}, Map{A | B, B}) // before it
	andBack = maps(Map{A | B, A}, Map{A | B, B}, Map{A | B, A})
	ring    = maps(Map{A | B, A}, Map{B | C, C}, Map{A | C, C})
	walking = maps(Map{A | B, A}, Map{A | B | C, B}, Map{B | C, C})
)

// The models that hold. Those of one change are tried with and without marks at the beginning.
var (
	changes = []Model{
		growing.of(one, oneTwo, two), growing.of(oneTwo, oneTwo), growing.of(one, oneTwo, oneTwo),
		shrinking.of(one, oneTwo, two), staying.of(one, oneTwo, two), moving.of(one, oneTwo, two),
		swapping.of(one, oneTwo, two), swapping.of(oneTwo, two),
	}
	sequences = []Model{
		leaving.of(oneTwo, twoThree, three), leaving.of(one, oneTwo, twoThree),
		arrived.of(one, oneTwo, twoThree), arrived.of(one, oneTwo, twoThree).fresh(),
		arrived.of(one, twoThree, three).fresh(), ring.of(one, twoThree, three).fresh(),
		ring.of(one, oneTwo, three).fresh(), andBack.of(oneTwo, twoThree, three),
	}

	// large adds what takes half a minute.
	large = []Model{
		growing.of(oneTwo, oneTwo, two).fresh(), swapping.of(oneTwo, oneTwo),
		swapping.of(one, oneTwo, oneTwo), moving.of(oneTwo, oneTwo, two),
		andBack.of(one, oneTwo, twoThree), andBack.of(oneTwo, twoThree).fresh(),
		walking.of(oneTwo, twoThree, three), walking.of(one, twoThree, three).fresh(),
	}
)

func maps(all ...Map) (m Model) {
	copy(m.Maps[1:], all)
	return m
}

func (m Model) of(clients ...Client) Model { m.Clients = clients; return m }
func (m Model) fresh() Model               { m.Fresh = true; return m }
func (m Model) with(mistake Mistake) Model { m.Mistake = mistake; return m }

func TestOneClientHoldsThroughAChangeOfTheMap(t *testing.T) {
	t.Parallel()
	for _, m := range changes {
		holds(t, m)
		holds(t, m.fresh())
	}
	for _, m := range sequences {
		holds(t, m)
	}
	if *everything {
		for _, m := range large {
			holds(t, m)
		}
	}
}

func TestMistakesBreakExclusion(t *testing.T) {
	t.Parallel()
	change := growing.of(one, oneTwo, two)
	start := growing.of(one, two).fresh()
	for mistake, m := range map[Mistake]Model{
		NoPresence:       change,
		OutlivesPresence: change,
		ReadsEarly:       change,
		BasePresence:     leaving.of(oneTwo, twoThree, three),
		NewHomeOnly:      change,
		OldHomeOnly:      change,
		NoExclusive:      change,
		MarksProve:       change,
		CompletesEarly:   shrinking.of(one, oneTwo, two),
		NoProof:          change,
		NoProofOfTwo:     arrived.of(one, twoThree),
		RetiresUnproven:  arrived.of(one, twoThree, three),
		Overtaken:        start,
		FoundingProves:   arrived.of(one, twoThree, three).fresh(),
		SkipsFounding:    start,
		FoundsByRaise:    start,
		FoundsOneGroup:   start,
		CompletesProven:  shrinking.of(one, oneTwo, two).fresh(),
		SharedNumber:     change,
	} {
		t.Run(string(mistake), func(t *testing.T) {
			t.Parallel()
			breaks(t, m.with(mistake))
		})
	}
}

// What no rule can see, because no group that one of the clients asks knows of the other.
func TestWhatTheProtocolCannotSee(t *testing.T) {
	t.Parallel()
	t.Run("a map that shares no group with the one below", func(t *testing.T) {
		breaks(t, disjoint.of(one, two))
	})
	t.Run("a map is skipped, and those around it share no group", func(t *testing.T) {
		breaks(t, maps(Map{A, A}, Map{A | B, B}, Map{B, B}).of(one, three))
	})
}

func holds(t *testing.T, m Model) {
	t.Helper()
	if short() && len(m.Clients) > 2 {
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
	steps := len(res.Violation.Trace)
	t.Logf("%s: found in %d states, %d steps: %s", m, res.States, steps, res.Violation)
}

// A client with both maps completes the change from each state there is, whatever others have left.
func TestAChangeOfTheMapComesToItsEnd(t *testing.T) {
	t.Parallel()
	for _, m := range []Model{growing, shrinking, swapping, staying, moving} {
		for _, m := range []Model{m.of(one, oneTwo, two), m.of(one, oneTwo, two).fresh()} {
			v := m.stuck()
			require.Nil(t, v, "%s: %s", m, v)
		}
	}
	v := moving.of(one, oneTwo, two).fresh().with(CompleteOnly).stuck()
	require.NotNil(t, v)
	t.Logf("complete only: %d steps: %s", len(v.Trace), v)
}

// stuck is the way to a state that Q and R do not settle.
func (m Model) stuck() *explore.Violation {
	return m.space().Explore(func(_ step, s *state, isNew bool) string {
		if isNew && !m.settles(*s) {
			return "Q does not complete the change"
		}
		return ""
	}).Violation
}

// settles reports whether R holds the name after all leases have ended, and Q and then R alone have
// done what they can, and whether R has its proof also without one of the groups.
func (m *Model) settles(s state) bool {
	s.held = [MaxClients][leases]Set{}
	for i := 1; i <= 2; i++ {
		for _, did := range []step{
			{action: founds}, {action: completes}, {action: takes, lease: exclusive}, {action: retires},
			{action: sees}, {action: follows},
			{action: takes, lease: presence}, {action: takes, lease: name},
		} {
			for g := range s.marks {
				did.client, did.group = i, g
				if next := s; m.does(&next, did) {
					s = next
				}
			}
		}
		if i == 1 {
			s.held[1] = [leases]Set{}
		}
	}
	groups := m.Maps[2].Groups
	for g := range s.marks {
		if others := groups &^ (1 << g); others != 0 {
			without := s
			without.marks[g] = 0
			if !m.isProven(&without, 2) {
				return false
			}
		}
	}
	return m.holds(&s, 2)
}
