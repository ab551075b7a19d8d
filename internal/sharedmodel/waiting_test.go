package sharedmodel

import (
	"testing"

	"github.com/redquorum/redquorum/internal/long"
)

var (
	waiter    = Client{Waits: true}
	returning = Client{Reads: true, Returns: true}
)

func prompt(clients ...Client) Model {
	return Model{Clients: clients, TTL: 2, IntentTTL: 2, Prompt: true}
}

// A waiting writer is granted once the time of the readers that were there is over, however many
// come.
func TestAWriterWaitsForPresentReadersOnly(t *testing.T) {
	t.Parallel()
	two := prompt(waiter, returning, returning)
	waits(t, two, two.TTL)

	for _, where := range []Where{Learned, WhereRefused, Everywhere} {
		long := prompt(waiter, returning)
		long.TTL, long.Where = 3, where
		waits(t, long, long.TTL)
	}

	fast := prompt(waiter, returning)
	fast.TTL, fast.IntentTTL, fast.FastNodes, fast.Patience = 3, 3, true, 3
	holds(t, fast)

	extends := prompt(waiter, Client{Reads: true, Returns: true, Extensions: 1})
	waits(t, extends, extends.TTL+1)
	waits(t, extends.with(RepairYields), extends.TTL+1) // repairs starve no writer, so they need no rule
}

// Two writers that wait, with intents on different nodes, keep readers out together. What an undo
// does with the other's intent makes no difference.
func TestOneOfTwoWritersIsGranted(t *testing.T) {
	t.Parallel()
	m := prompt(waiter, waiter, returning)
	m.Patience = m.TTL + 1
	holds(t, m)
	if !*everything {
		return
	}
	holds(t, m.with(IntentReplaces))
	holds(t, m.with(IntentProlongs))
	m.Where = Everywhere
	waits(t, m, m.TTL)
	m.Where = WhereRefused
	waits(t, m, 3*m.TTL)
}

// A writer that comes once, and may die whenever it likes, has its turn of a TTL. Its intent
// blocks readers for that intent's TTL.
func TestADeadWriterCostsItsTTL(t *testing.T) {
	t.Parallel()
	m := prompt(waiter, returning, writer)
	m.Where = Everywhere
	waits(t, m, 2*m.TTL)

	blocked := prompt(Client{Reads: true, Waits: true}, returning, writer)
	blocked.IntentTTL = 3
	waits(t, blocked, blocked.IntentTTL)
}

// waits checks that patience suffices, and that less does not.
func waits(t *testing.T, m Model, patience int) {
	t.Helper()
	m.Patience = patience
	holds(t, m)
	m.Patience--
	if long.Models() && m.Explore().Violation == nil {
		t.Errorf("%s: less patience suffices", m)
	}
}

func TestMistakesStarveAWriter(t *testing.T) {
	t.Parallel()
	m := prompt(waiter, returning)
	m.Patience = 12 // six TTLs

	t.Run("no intents", func(t *testing.T) {
		m := m
		m.IntentTTL = 0
		breaks(t, m)
	})
	t.Run("the intent lasts no longer than the writer rests", func(t *testing.T) {
		m := m
		m.IntentTTL = 1
		breaks(t, m)
	})
	t.Run("the intent is the try's", func(t *testing.T) {
		breaks(t, m.with(IntentOfTry))
	})
	t.Run("the intent is set at the marker only", func(t *testing.T) {
		m := m
		m.Where = AtMarker
		breaks(t, m)
	})
}

// Intents of tries do no harm if each undo prolongs what it finds.
func TestAnIntentMayBeTheTrysIfOthersProlongIt(t *testing.T) {
	t.Parallel()
	m := prompt(waiter, returning).with(IntentOfTry, IntentProlongs)
	waits(t, m, m.TTL)
}
