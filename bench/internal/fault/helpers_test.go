package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stage is nodes in virtual time that note what happens to them.
type stage struct {
	takes  time.Duration // each breaking and mending
	broken string        // the note that fails, without its time

	began time.Time
	mu    sync.Mutex
	did   []string
}

func (s *stage) Break(ctx context.Context, f Fault, node int) error {
	return s.note(ctx, fmt.Sprint(f.Kind(), " ", node))
}

func (s *stage) Mend(ctx context.Context, f Fault, node int) error {
	return s.note(ctx, fmt.Sprint("mend ", node))
}

func (s *stage) note(ctx context.Context, what string) error {
	s.mu.Lock()
	s.did = append(s.did, fmt.Sprintf("%v %s", time.Since(s.began), what))
	s.mu.Unlock()
	if what == s.broken {
		return errors.New("it will not " + what)
	}
	t := time.NewTimer(s.takes)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// story is what happened, in order; what happens at the same time in the order of the alphabet.
func (s *stage) story() []string {
	when := func(note string) time.Duration {
		var at, rest string
		fmt.Sscan(note, &at, &rest)
		d, _ := time.ParseDuration(at)
		return d
	}
	slices.Sort(s.did)
	slices.SortStableFunc(s.did, func(a, b string) int { return int(when(a) - when(b)) })
	return s.did
}
