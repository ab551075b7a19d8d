package load

import (
	"context"
	"sync"
	"time"
)

// reporting is how often a child tells its parent.
const reporting = 500 * time.Millisecond

// report tells the parent twice a second until the returned function is called,
// which tells it the rest.
func (c *client) report(rec *recorder) (finish func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var reporter sync.WaitGroup
	reporter.Go(func() {
		ticks := time.NewTicker(reporting)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				// A parent that does not listen any more closes stdin too, which ends this process.
				_ = c.tell(rec)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() error {
		cancel()
		reporter.Wait()
		return c.tell(rec)
	}
}

func (c *client) tell(rec *recorder) error {
	progress, holdings := rec.progress(time.Now())
	if len(holdings) > 0 {
		if err := c.send(message{Holdings: encodeHoldings(holdings)}); err != nil {
			return err
		}
	}
	return c.send(message{Progress: &progress})
}

// finish sends what was recorded.
func (c *client) finish(rec *recorder, res *result, stuck int) error {
	for _, s := range rec.close(res, stuck) {
		if err := c.send(message{Slice: s}); err != nil {
			return err
		}
	}
	return c.send(message{Result: res})
}
