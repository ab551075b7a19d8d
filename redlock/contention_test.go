package redlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestContentionStaysContention though the nodes that refused break right
// after: somebody holds the lock, and waiting makes sense.
func TestContentionStaysContention(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		release answer
		want    error
	}{
		"connection lost": {answer{outcome: redlock.Failed, err: errors.New("connection lost")}, redlock.ErrHeld},
		"not sent":        {answer{unsent: true, err: errors.New("queue full")}, redlock.ErrHeld},
		"no answer":       {answer{silent: true}, redlock.ErrHeld},
		"no lock at all":  {answer{outcome: redlock.Failed, err: redlock.ErrWrongType}, redlock.ErrNoQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, l := puppets(t, 3, func(_ int, op redlock.Op, _ int) answer {
					if op == redlock.OpAcquire {
						return refuses
					}
					return test.release
				})
				_, err := l.TryAcquire(t.Context(), "x")
				isOnly(t, err, test.want)
			})
		})
	}
}

// TestACallerWithAnIntervalKeepsNobodyWaiting: it sleeps on a schedule of its
// own, and whoever stood behind it in a line would sleep as long.
func TestACallerWithAnIntervalKeepsNobodyWaiting(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		go l.Acquire(t.Context(), "x", redlock.RetryInterval(time.Hour))
		synctest.Wait()
		time.AfterFunc(time.Second, func() { lock.Release(t.Context()) })
		assert.Less(t, took(func() {
			second, err := l.Acquire(t.Context(), "x")
			if assert.NoError(t, err) {
				assert.NoError(t, second.Release(t.Context()))
			}
		}), 2*time.Second)
	})
}
