package wait

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/ticket"
)

// TestWhatFollowsFromAView has a row for each case of next. Times are milliseconds.
func TestWhatFollowsFromAView(t *testing.T) {
	t.Parallel()
	at := func(ms int) clock.Instant { return clock.Instant(ms) * clock.Instant(time.Millisecond) }
	unknown := ticket.Standing{}
	first := ticket.Standing{Outcome: protocol.Granted}
	beside := ticket.Standing{Outcome: protocol.Granted, Others: 1}
	second := ticket.Standing{Outcome: protocol.Refused, Others: 1}
	failed := ticket.Standing{Outcome: protocol.Failed}
	asked := questions{call: true, key: true, answer: ballot.Limit{Due: at(20)}, again: at(100)}
	onlyCall := questions{call: true, answer: ballot.Limit{Due: at(20)}, again: at(100)}
	onlyPlace := questions{answer: ballot.Limit{Due: at(20)}, again: at(100)}
	const now = 10
	for _, test := range []struct {
		name string
		view view
		step step
		due  int
	}{
		{"no answer yet", view{questions: asked, standing: unknown}, sleep, 20},
		{"no answer, and the key is free", view{questions: asked, standing: unknown, free: true}, sleep, 20},
		{"no answer in time", view{questions: questions{answer: ballot.Limit{Due: at(now)}}, standing: unknown}, late, 0},
		{"the node keeps no queue", view{questions: asked, standing: failed}, move, 0},
		{"alone, and nothing was asked besides", view{questions: onlyPlace, standing: first}, tryAll, 0},
		{"the first of others, likewise", view{questions: onlyPlace, standing: beside}, askAgain, 0},
		{"the first, and the key is not watched", view{questions: onlyCall, standing: first}, askAgain, 0},
		{"the first, and the key is held", view{questions: asked, standing: first}, sleep, 100},
		{"the first, and the key is free", view{questions: asked, standing: first, free: true}, tryFree, 0},
		{"the same, soon after a try", view{questions: asked, standing: first, free: true, notBefore: at(12)}, sleep, 12},
		{"the first for long", view{questions: questions{key: true, again: at(now)}, standing: first}, tryAll, 0},
		{"the same, and this process has the lock", view{questions: questions{key: true, again: at(now)}, standing: first, own: true}, askAgain, 0},
		{"behind", view{questions: asked, standing: second}, sleep, 100},
		{"behind, and called", view{questions: asked, standing: second, called: true}, askAgain, 0},
		{"behind, and not to be called", view{questions: onlyPlace, standing: second}, askAgain, 0},
		{"behind for long", view{questions: questions{call: true, again: at(now)}, standing: second}, askAgain, 0},
		{"behind, and the key is free", view{questions: asked, standing: second, free: true}, sleep, 100},
		{"behind, and others leave it lie", view{questions: questions{call: true, key: true, again: at(100), takeover: at(30)}, standing: second, free: true}, sleep, 30},
		{"the same for long", view{questions: questions{call: true, key: true, again: at(100), takeover: at(now)}, standing: second, free: true}, takeOver, 0},
		{"a reader behind, and the key has changed", view{questions: asked, standing: second, shared: true, free: true}, tryBeside, 0},
		{"a reader that is called", view{questions: asked, standing: second, shared: true, called: true}, tryBeside, 0},
		{"a reader behind, soon after a try", view{questions: asked, standing: second, shared: true, free: true, notBefore: at(12)}, sleep, 12},
		{"a reader that is the first", view{questions: asked, standing: first, shared: true, free: true}, tryFree, 0},
	} {
		test.view.now = at(now)
		step, due := test.view.next()
		assert.Equal(t, test.step, step, test.name)
		assert.Equal(t, at(test.due), due, test.name)
	}
}
