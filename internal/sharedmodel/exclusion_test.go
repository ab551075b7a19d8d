package sharedmodel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/long"
)

// Clients of the tests. The number is how many extensions they may make.
var (
	writer   = Client{}
	writer1  = Client{Extensions: 1}
	writer2  = Client{Extensions: 2}
	reader   = Client{Reads: true}
	reader1  = Client{Reads: true, Extensions: 1}
	reader2  = Client{Reads: true, Extensions: 2}
	changer  = Client{Downgrades: true}
	changer1 = Client{Downgrades: true, Extensions: 1}
)

// stays keeps a client from ending its claim, which halves the states of three clients.
func (c Client) stays() Client {
	c.Stays = true
	return c
}

// The models of exclusion, by what they are about. A writer of theirs is also what a client of
// another library is, unless a node forgets: no intent is set.
var (
	extending    = Model{Clients: []Client{writer2, reader2}, TTL: 2, Lossy: true}
	meeting      = Model{Clients: []Client{writer, reader, reader}, TTL: 2}
	sharing      = Model{Clients: []Client{writer.stays(), reader1.stays(), reader}, TTL: 2}
	fastNodes    = Model{Clients: []Client{writer1, reader1}, TTL: 3, FastNodes: true}
	forgetting   = Model{Clients: []Client{writer, reader2}, TTL: 2, Forgets: true, Lossy: true}
	exclusive    = Model{Clients: []Client{writer2, writer}, TTL: 2, Forgets: true, Lossy: true}
	unnoticed    = Model{Clients: []Client{writer2, reader2}, TTL: 2, Unnoticed: true, Lossy: true}
	downgrading  = Model{Clients: []Client{changer1, writer}, TTL: 2, Lossy: true}
	forgetful    = Model{Clients: []Client{changer, writer}, TTL: 2, Forgets: true, Lossy: true}
	joining      = Model{Clients: []Client{changer.stays(), writer.stays(), reader}, TTL: 2}
	lossySharing = Model{Clients: []Client{writer.stays(), reader1.stays(), reader}, TTL: 2, Lossy: true}
	takingOver   = Model{Clients: []Client{writer.stays(), writer.stays(), reader}, TTL: 2, Unnoticed: true}

	models = []Model{extending, meeting, sharing, fastNodes, forgetting, exclusive, unnoticed, downgrading, forgetful, joining}

	// large adds what takes minutes.
	large = []Model{
		lossySharing, takingOver,
		{Clients: []Client{writer, reader1, reader}, TTL: 2, Lossy: true},
		{Clients: []Client{changer, writer, reader}, TTL: 2},
		{Clients: []Client{writer, writer, reader}, TTL: 2, IntentTTL: 1},
	}
)

func TestAWriterHoldsAlone(t *testing.T) {
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

// Some rules are not there for exclusion.
//
// An extension that adds, and a repair that counts, claim the lock anew. A quorum that grants that
// in one round excludes others as any quorum does, and the old claim was believed until then.
//
// With one expiry for the set, and with a member that is extended before it is purged, members live
// for longer, which excludes more. So do a value that stays behind a downgrade, and a write that is
// run behind its undo: no client believes in either. Whether a repair heeds intents decides only
// what is refused.
func TestExclusionDoesNotNeedEveryRule(t *testing.T) {
	t.Parallel()
	for f, in := range map[Fault][]Model{
		OneExpiry:      {meeting},
		ExtendAdds:     {extending, unnoticed, forgetting},
		ExtendExpired:  {extending},
		RepairCounts:   {extending, unnoticed, exclusive},
		RepairYields:   {extending},
		LeaveMember:    {downgrading},
		DowngradeAgain: {downgrading},
		UndoOvertakes:  {extending},
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			if *everything {
				in = append(models[:len(models):len(models)], large[:2]...)
			}
			for _, m := range in {
				holds(t, m.with(f))
			}
		})
	}
}

func TestMistakesBreakExclusion(t *testing.T) {
	t.Parallel()
	for f, m := range map[Fault]Model{
		FirstExpiry:      meeting,
		ReadBesideWriter: extending,
		ExtendBlindly:    lossySharing,
		ExtendUnmarked:   unnoticed,
		LeaveDeletes:     meeting,
		LeaveUnseen:      takingOver,
		DowngradeLoses:   joining,
		DowngradeWrites:  joining,
		NeverMute:        forgetting,
		BrieflyMute:      forgetting,
		MuteExtends:      exclusive,
		NoDrift:          fastNodes,
		UndoneWins:       extending,
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			breaks(t, m.with(f))
		})
	}
}

func holds(t *testing.T, m Model) {
	t.Helper()
	if !long.Models() && len(m.Clients) > 2 {
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
	if !long.Models() && len(m.Clients) > 2 {
		return
	}
	res := m.Explore()
	require.NotNil(t, res.Violation, "%s: not found in %d states", m, res.States)
	t.Logf("%s: found in %d states, %d steps: %s", m, res.States, res.Steps, res.Violation)
}

func (m Model) with(faults ...Fault) Model {
	m.Faults = faults
	return m
}

func (m Model) String() string {
	var words []string
	for _, c := range m.Clients {
		words = append(words, c.String())
	}
	words = append(words, fmt.Sprintf("TTL %d", m.TTL))
	if m.IntentTTL > 0 {
		words = append(words, fmt.Sprintf("intents of %d %s", m.IntentTTL, m.Where))
	}
	if m.Patience > 0 {
		words = append(words, fmt.Sprintf("patience %d", m.Patience))
	}
	for _, word := range []struct {
		is   bool
		text string
	}{
		{m.FastNodes, "fast nodes"}, {m.Lossy, "lossy"}, {m.Forgets, "a node forgets"},
		{m.Unnoticed, "a node forgets unnoticed"}, {m.Prompt, "prompt"}, {m.Faults != nil, fmt.Sprintf("faults: %q", m.Faults)},
	} {
		if word.is {
			words = append(words, word.text)
		}
	}
	return strings.Join(words, ", ")
}

func (c Client) String() string {
	text := "writer"
	switch {
	case c.Reads:
		text = "reader"
	case c.Downgrades:
		text = "writer that downgrades"
	}
	if c.Waits {
		text += " that waits"
	}
	if c.Returns {
		text += " that returns"
	}
	if c.Extensions > 0 {
		text += fmt.Sprintf(" and extends %d times", c.Extensions)
	}
	return text
}
