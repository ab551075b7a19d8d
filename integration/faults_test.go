package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
)

// A fault is a way in which a node fails, and the way back.
type fault struct {
	name  string
	begin func(fleet.Fleet, context.Context, int) error
	end   func(fleet.Fleet, context.Context, int) error
}

var (
	paused = fault{"paused", fleet.Fleet.Pause, fleet.Fleet.Resume}
	killed = fault{"killed", fleet.Fleet.Kill, func(f fleet.Fleet, ctx context.Context, i int) error {
		return f.Restart(ctx, i, fleet.Kept)
	}}
	disconnected = fault{"disconnected", fleet.Fleet.Disconnect, fleet.Fleet.Reconnect}
)

// onEveryFault runs the test with each way to fail that the rig's kind has.
func onEveryFault(t *testing.T, r *rig, test func(t *testing.T, f fault)) {
	faults := []fault{paused, killed}
	if r.Kind() == fleet.Docker {
		faults = append(faults, disconnected)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

// fail makes nodes fail, all at once, until heal or the end of the test. An
// operating system or a Docker engine that cannot do it skips the test.
func (r *rig) fail(t *testing.T, f fault, which ...int) {
	t.Helper()
	t.Cleanup(func() { r.heal(t) })
	err := r.some(which, func(i int) error {
		err := f.begin(r.Fleet, context.Background(), i)
		if err == nil {
			r.mu.Lock()
			r.broken[i] = f
			r.mu.Unlock()
		}
		return err
	})
	if errors.Is(err, fleet.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
}

// heal brings back all nodes that fail.
func (r *rig) heal(t *testing.T) {
	t.Helper()
	var which []int
	r.mu.Lock()
	for i := range r.broken {
		which = append(which, i)
	}
	r.mu.Unlock()
	require.NoError(t, r.some(which, func(i int) error {
		r.mu.Lock()
		f := r.broken[i]
		r.mu.Unlock()
		err := f.end(r.Fleet, context.Background(), i)
		if err == nil {
			r.mu.Lock()
			delete(r.broken, i)
			r.mu.Unlock()
		}
		return err
	}))
}
