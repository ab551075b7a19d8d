package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/fleet"
)

// clockOffsets are how far the clients' wall clocks are ahead, one after the other: not at all, by
// some of a TTL, and by hours.
var clockOffsets = []time.Duration{0, -200 * time.Millisecond, 300 * time.Millisecond, -time.Hour,
	24 * time.Hour}

// processes are the clients of a trial, or its daemons.
type processes struct {
	log    *history.Log
	config client.Config
	each   func(i int, c *client.Config) // completes that of one
	broken func()                        // is called when a client has failed
	stop   func() error                  // ends all clients in good order; may be called twice

	mu      sync.Mutex
	started int
	all     []*client.Process
}

func newProcesses(log *history.Log, config client.Config, each func(int, *client.Config), broken func()) *processes {
	c := &processes{log: log, config: config, each: each, broken: broken}
	c.stop = sync.OnceValue(c.stopAll)
	return c
}

// start starts client i, the next one or one in the place of a client that was killed.
func (c *processes) start(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	config := c.config
	config.Who = c.started
	c.each(i, &config)
	p, err := client.Start(config, c.log, c.broken)
	if err != nil {
		return err
	}
	if i == len(c.all) {
		c.all = append(c.all, p)
	} else {
		c.all[i] = p
	}
	return nil
}

func (c *processes) at(i int) *client.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[i]
}

// note notes what is about to happen to a client, or has happened to it.
func (c *processes) note(kind history.Kind, p *client.Process) error {
	return c.log.Add(history.Event{At: history.Now(), Kind: kind, Who: p.Who})
}

func (c *processes) Pause(_ context.Context, i int) error {
	p := c.at(i)
	return errors.Join(c.note(history.Paused, p), p.Pause())
}

func (c *processes) Resume(_ context.Context, i int) error {
	p := c.at(i)
	return errors.Join(p.Resume(), c.note(history.Resumed, p))
}

func (c *processes) Replace(_ context.Context, i int) error {
	p := c.at(i)
	if err := errors.Join(c.note(history.Killed, p), p.Kill()); err != nil {
		return err
	}
	return c.start(i)
}

// End lets a process end, and starts another in its place.
func (c *processes) End(_ context.Context, i int) error {
	if err := c.at(i).Stop(c.config.Patience + slack); err != nil {
		return err
	}
	return c.start(i)
}

func (c *processes) stopAll() error {
	return fleet.Parallel(len(c.all), func(i int) error { return c.all[i].Stop(c.config.Patience + slack) })
}
