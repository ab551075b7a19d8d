package main

import (
	"errors"
	"sync"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/history"
)

// skews are the clients' wall clocks, one after the other: right, some of a TTL
// off, and mad.
var skews = []time.Duration{0, -200 * time.Millisecond, 300 * time.Millisecond, -time.Hour, 24 * time.Hour}

// A crew is the client processes of a trial.
type crew struct {
	log     *history.Log
	config  client.Config
	longTTL time.Duration // of every second client; zero: that of all
	stop    func() error  // ends all clients in good order; may be called twice

	mu      sync.Mutex
	hired   int
	members []*client.Process
}

func newCrew(log *history.Log, longTTL time.Duration, config client.Config) *crew {
	c := &crew{log: log, config: config, longTTL: longTTL}
	c.stop = sync.OnceValue(c.stopAll)
	return c
}

// hire starts a client at place i, at the end or instead of one that has been
// killed.
func (c *crew) hire(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hired++
	config := c.config
	config.Who, config.Skew = c.hired, skews[i%len(skews)]
	if c.longTTL > 0 && i%2 == 1 {
		config.TTL = c.longTTL
	}
	p, err := client.Start(config, c.log)
	if err != nil {
		return err
	}
	if i == len(c.members) {
		c.members = append(c.members, p)
	} else {
		c.members[i] = p
	}
	return nil
}

func (c *crew) member(i int) *client.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[i]
}

func (c *crew) Pause(i int) error  { return c.member(i).Pause() }
func (c *crew) Resume(i int) error { return c.member(i).Resume() }

func (c *crew) Replace(i int) error {
	if err := c.member(i).Kill(); err != nil {
		return err
	}
	return c.hire(i)
}

func (c *crew) stopAll() error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, p := range c.members {
		wg.Go(func() { errs[i] = p.Stop(slack) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
