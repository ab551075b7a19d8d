package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestDoHoldsTheLockMeanwhile, passes fn's error on, and gives the lock back.
func TestDoHoldsTheLockMeanwhile(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		broken := errors.New("broken")
		for _, want := range []error{nil, broken} {
			err := l.Do(ctx, "x", func(ctx context.Context) error {
				assert.Equal(t, 5, holding(w, "x"))
				assert.Equal(t, "value", ctx.Value(key{}))
				time.Sleep(time.Hour)
				assert.NoError(t, ctx.Err())
				return want
			})
			assert.Equal(t, want, err)
			time.Sleep(leg)
			assert.Zero(t, holding(w, "x"))
		}
	})
}

// TestDoReleasesWhenFnPanics.
func TestDoReleasesWhenFnPanics(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		assert.PanicsWithValue(t, "broken", func() {
			l.Do(t.Context(), "x", func(context.Context) error { panic("broken") })
		})
		time.Sleep(leg)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestDoTellsOfALoss: fn's context ends, and the error says that the work may
// have run unprotected, beside fn's own.
func TestDoTellsOfALoss(t *testing.T) {
	for name, fnErr := range map[string]error{"fn succeeds": nil, "fn fails": errors.New("broken")} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
				err := l.Do(t.Context(), "x", func(ctx context.Context) error {
					assert.Equal(t, validity, took(func() { <-ctx.Done() }))
					assert.ErrorIs(t, context.Cause(ctx), redlock.ErrLost)
					return fnErr
				})
				assert.ErrorIs(t, err, redlock.ErrLost)
				if fnErr != nil {
					assert.ErrorIs(t, err, fnErr)
				}
			})
		})
	}
}

// TestDoTellsOfALossThatItNoticesAtTheEnd: a majority has another's value when
// the lock is released.
func TestDoTellsOfALossThatItNoticesAtTheEnd(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		err := l.Do(t.Context(), "x", func(ctx context.Context) error {
			for _, s := range w.Servers() {
				s.Set("x", "another", time.Hour)
			}
			return nil
		})
		isOnly(t, err, redlock.ErrLost)
		assert.Equal(t, 5, holding(w, "x"))
	})
}

// TestDoEndsWithItsContext: fn is told, and the lock is given back all the
// same.
func TestDoEndsWithItsContext(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Do(ctx, "x", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		assert.Equal(t, context.DeadlineExceeded, err)
		time.Sleep(leg)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestDoTellsOfAClose of the Locker: the work was no longer protected.
func TestDoTellsOfAClose(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		isOnly(t, l.Do(t.Context(), "x", func(ctx context.Context) error {
			l.Close()
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), redlock.ErrClosed)
			return nil
		}), redlock.ErrClosed)
	})
}

// TestDoThatGetsNoLockDoesNotRun fn.
func TestDoThatGetsNoLockDoesNotRun(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		take(t, l, "x")
		err := l.Do(t.Context(), "x", func(context.Context) error {
			t.Error("fn ran")
			return nil
		}, redlock.Retries(1))
		isOnly(t, err, redlock.ErrHeld)
	})
}

// TestDoSurvivesAReleaseThatTooFewConfirm: the work was protected, and what
// remains expires by itself.
func TestDoSurvivesAReleaseThatTooFewConfirm(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		assert.NoError(t, l.Do(t.Context(), "x", func(context.Context) error {
			for _, s := range w.Servers() {
				s.Hang()
			}
			return nil
		}))
	})
}
