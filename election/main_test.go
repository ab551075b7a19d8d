package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leg = sim.OneWay
	rtt = sim.RTT
	ttl = sim.TTL
)

// inUse runs test on servers that have been in use for long.
func inUse(t *testing.T, seed uint64, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	sim.SimulateInUse(t, seed, 3*time.Hour, test)
}

// simulate is like inUse, in parallel with other tests.
func simulate(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	inUse(t, 1, test)
}

// open returns the Locker of a new process, with the memory guard.
func open(t *testing.T, w *sim.World, opts ...redlock.LockerOption) (*redlock.Locker, *sim.Client) {
	t.Helper()
	c := w.NewClient(1)
	return sim.Locker(t, c, append(opts, redlock.TTL(ttl), redlock.MemoryGuard(true), sim.Wall(w.Now))...), c
}

// A candidate is a process that campaigns until stop is called. It sends each term to begun, and
// leads until the term ends or a result is sent to it.
type candidate struct {
	*sim.Client
	office *election.Election
	begun  chan election.Term
	over   chan error // cause of the end of each term, from its context; nil if ended by result
	result chan error
	stop   func()
	err    chan error // result of Run
}

func campaign(t *testing.T, w *sim.World, id string, opts ...redlock.LockerOption) *candidate {
	t.Helper()
	l, client := open(t, w, opts...)
	ctx, stop := context.WithCancel(t.Context())
	c := &candidate{
		Client: client, office: election.New(l, "office"), stop: stop,
		begun: make(chan election.Term, 100), over: make(chan error, 100), result: make(chan error), err: make(chan error, 1),
	}
	go func() {
		c.err <- c.office.Run(ctx, id, func(ctx context.Context, term election.Term) error {
			c.begun <- term
			select {
			case <-ctx.Done():
				c.over <- context.Cause(ctx)
				return assert.AnError // the result is ignored
			case err := <-c.result:
				c.over <- nil
				return err
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		client.Resume()
	})
	return c
}

// leave ends the campaign.
func (c *candidate) leave(t *testing.T) {
	t.Helper()
	c.stop()
	require.NoError(t, <-c.err)
}
