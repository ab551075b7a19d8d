package sim

import (
	"errors"
	"fmt"
	"os"
	"testing/synctest"
	"time"
)

var (
	errStuck   = errors.New("sim: everybody waits, and nothing is to come")
	errEndless = errors.New("sim: no end in sight")
)

// Play runs script in a time of the World's own, while that of the bubble stands
// still: it jumps from one event to the next, but not before all that the last
// one set off has come to rest. So nothing races, and a seed replays to the last
// step. It is also several times as quick as the bubble's time, for which the
// runtime would have to be woken at each event.
//
// Whatever takes part must go by the World's time or a Client's. Play is called
// once, before anything happens, and returns when script does. Its error says
// that the script waits for what never comes, or is not over by limit; its
// goroutines are then still there.
func (w *World) Play(limit time.Duration, script func()) error {
	defer w.Blame()
	w.timeline.play()
	over := false
	go func() {
		defer w.Blame()
		script()
		over = true
	}()
	for {
		synctest.Wait()
		if over {
			return nil
		}
		e := w.timeline.step()
		for e != nil && e.inner {
			e = w.timeline.step()
		}
		switch {
		case e == nil:
			return errStuck
		case e.at > limit:
			return errEndless
		}
	}
}

// Blame is deferred by the goroutines of a script: if one panics, the seed is
// printed, without which nobody could have it again.
func (w *World) Blame() {
	if cause := recover(); cause != nil {
		fmt.Fprintf(os.Stderr, "sim: in the World of seed %d:\n", w.seed)
		panic(cause)
	}
}
