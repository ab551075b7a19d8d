package redlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

const random = "0123456789abcdef0123456789abcdef01234567"

// noon is the time of the holders' wall clocks in these tests, and held is the text of a label.
var (
	noon = time.Date(2026, 11, 22, 12, 3, 7, 0, time.UTC)
	web3 = redlock.Holder{Owner: "web-3 pid 812", Since: noon}
)

func atNoon() redlock.LockerOption {
	return sim.Wall(func() time.Time { return noon.Add(999 * time.Millisecond).In(time.FixedZone("", 3600)) })
}

func TestValueHasTheLabelAfterItsRandomPart(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.Owner("web-3 pid 812"), atNoon())
		k := take(t, l, "x")
		assert.Regexp(t, `^[0-9a-f]{40} 20261122T120307Z web-3 pid 812$`, k.Value())
		assert.Equal(t, web3, redlock.HolderOf(k.Value()))
		assert.Equal(t, "web-3 pid 812 since 2026-11-22T12:03:07Z", web3.String())
		assert.Regexp(t, `^[0-9a-f]{40}$`, take(t, l, "y", redlock.Owner("")).Value())

		seen, err := l.Inspect(t.Context(), "x")
		require.NoError(t, err)
		for _, n := range seen.Nodes {
			assert.Equal(t, k.Value(), n.Value)
			assert.Equal(t, web3, n.Holder)
		}
		require.NoError(t, k.Extend(t.Context()), "the label is part of the value")
		require.NoError(t, k.Release(t.Context()))
		assert.Zero(t, holding(w, "x"))
	})
}

func TestOnlyValuesOfTheLibraryHaveALabel(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]redlock.Holder{
		random + " 20261122T120307Z web-3 pid 812":               web3,
		random + " 20261122T120307Z é":                           {Owner: "é", Since: noon},
		random + " 20261122T120307Z " + strings.Repeat("a", 128): {Owner: strings.Repeat("a", 128), Since: noon},

		"":                                 {},
		random:                             {},
		random + " ":                       {},
		random + " me":                     {},
		random + " 20261122T120307Z":       {},
		random + " 20261122T120307Z ":      {},
		random + " 20261322T120307Z web-3": {},
		random + " 20261122T120307Z " + strings.Repeat("a", 129): {},
		random + " 20261122T120307Z a\x1b[31m":                   {},
		random + " 20261122T120307Z a\xff":                       {},
		random + "-20261122T120307Z web-3":                       {},
		random[1:] + " 20261122T120307Z web-3":                   {},
		random + "0 20261122T120307Z web-3":                      {},
		"G" + random[1:] + " 20261122T120307Z web-3":             {},
	} {
		assert.Equal(t, want, redlock.HolderOf(value), "%q", value)
	}
	assert.Empty(t, redlock.Holder{}.String())
}

func TestUnprintableLabelIsRefused(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		strings.Repeat("a", 129): "has 129 bytes, at most 128 are allowed: shorten it",
		"a\nb":                   `Owner("a\nb"): must be printable text`,
		"a\xff":                  "must be printable text",
	} {
		_, err := redlock.New([]protocol.Node{&puppet{name: "a"}}, redlock.Owner(label))
		assert.ErrorContains(t, err, want)
	}
}

// TestRefusedCallerLearnsTheHolder: the caller gets the holder's label immediately and at the end
// of its wait, but never the value.
func TestRefusedCallerLearnsTheHolder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w, redlock.Owner("web-3 pid 812"), atNoon())
		k := take(t, holder, "x")
		events := &recorder{}
		l, _ := open(t, w, redlock.Observe(events))
		try := func(left string, opts ...redlock.Option) {
			err := isHeld(t, l, "x", opts...)
			var failure *redlock.QuorumError
			require.ErrorAs(t, err, &failure)
			assert.Equal(t, web3, failure.Holder)
			assert.ErrorContains(t, err, "; held by web-3 pid 812 since 2026-11-22T12:03:07Z; free in "+left+" unless renewed)")
			assert.NotContains(t, err.Error(), k.Value()[:8])
		}
		try("9.98s")
		try("9.96s", redlock.Fenced(), redlock.Owner("web-4"))

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, "x")
		isOnly(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "held by web-3 pid 812 since")
		for _, e := range events.take(redlock.EventNotAcquired) {
			assert.ErrorContains(t, e.Err, "held by web-3 pid 812 since", "observers learn it by the error")
		}
	})
}

// TestLabelOfTheHolderIsShown: other labels on the nodes may belong to callers that compete for the
// lock.
func TestLabelOfTheHolderIsShown(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		seen := func() redlock.Holder {
			_, err := l.TryAcquire(t.Context(), "x")
			var failure *redlock.QuorumError
			require.ErrorAs(t, err, &failure)
			return failure.Holder
		}
		set := func(i int, value string) { w.Servers()[i].Set("x", value, time.Hour) }
		mine, other := random+" 20261122T120307Z web-3 pid 812", random+" 20261122T120307Z other"
		set(0, mine)
		set(1, mine)
		set(2, other)
		assert.Empty(t, seen())
		set(3, mine)
		assert.Equal(t, web3, seen())
		for i := range 5 {
			set(i, "a value of another library")
		}
		assert.Empty(t, seen())
		for i := range 5 {
			set(i, random+" not a time and a label")
		}
		assert.Empty(t, seen())
	})
}
