package compose

import (
	"fmt"
	"testing"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// BenchmarkHint measures a hint about one of the names for which callers wait. The goroutine that
// reads from a node calls hint.
func BenchmarkHint(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := clock.NewFake(1)
			s := NewSemaphores(engine.New(engine.Config{Clock: c}), []protocol.Node{}, c)
			for i := range n {
				g := s.begin(Want{Key: fmt.Sprint("x", i), K: 5, Weight: 1})
				g.enter()
			}
			for b.Loop() {
				s.hint(0, "redlock:permit:3:{x0}")
			}
		})
	}
}
