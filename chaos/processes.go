package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/relay"
)

// clockOffsets are the offsets of the clients' wall clocks, in rotation: none, a part of a TTL, and
// hours.
var clockOffsets = []time.Duration{0, -200 * time.Millisecond, 300 * time.Millisecond, -time.Hour,
	24 * time.Hour}

// processes are the clients of a trial, or its daemons.
type processes struct {
	log    *history.Log
	config func(i int) client.Config // configuration of process i; start adds the number of the process to its Who
	broken func()                    // called when a client has failed

	started atomic.Int64
	all     []*client.Process
}

// start starts client i: a new one, or the replacement of a client that has ended.
func (c *processes) start(i int) error {
	config := c.config(i)
	config.Who += int(c.started.Add(1))
	p, err := client.Start(config, c.log, c.broken)
	if err != nil {
		return err
	}
	if i == len(c.all) {
		c.all = append(c.all, nil)
	}
	c.all[i] = p
	return nil
}

func (c *processes) pauseOne(_ context.Context, i int) error  { return c.all[i].PauseOne() }
func (c *processes) resumeOne(_ context.Context, i int) error { return c.all[i].ResumeOne() }

func (c *processes) pause(_ context.Context, i int) error  { return c.all[i].Pause() }
func (c *processes) resume(_ context.Context, i int) error { return c.all[i].Resume() }

func (c *processes) replace(_ context.Context, i int) error {
	if err := c.all[i].Kill(); err != nil {
		return err
	}
	return c.start(i)
}

// end ends a process, and starts another one that replaces it.
func (c *processes) end(_ context.Context, i int) error {
	if err := c.all[i].Stop(patience + slack); err != nil {
		return err
	}
	return c.start(i)
}

// stop ends all processes regularly. It may be called twice.
func (c *processes) stop() error {
	return fleet.Parallel(len(c.all), func(i int) error { return c.all[i].Stop(patience + slack) })
}

const (
	daemons  = 2
	noClient = 100_000 // above the numbers of all clients
)

// build builds the command in a folder of its own.
func build(ctx context.Context) (dir, program string, err error) {
	if dir, err = os.MkdirTemp("", "redquorum-chaos-*"); err != nil {
		return "", "", err
	}
	program = filepath.Join(dir, "redlock")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/redlock")
	cmd.Dir = ".." // the module; chaos runs in its folder chaos
	if text, err := cmd.CombinedOutput(); err != nil {
		return dir, "", fmt.Errorf("go build ./cmd/redlock: %w: %s", err, text)
	}
	return dir, program, nil
}

// serve starts processes of "redlock serve", each behind a relay. The returned function ends them,
// even after an error.
func (t *trial) serve(program string, urls []string, broken func()) (stop func() error, err error) {
	stop = func() (err error) {
		if t.daemons != nil {
			err = t.daemons.stop()
		}
		for _, r := range t.answers {
			r.Close()
		}
		return err
	}
	var addrs []string
	for i := range daemons {
		var at string
		err := fleet.Options{}.OnPort(i, func(port int) error {
			at = fleet.Loopback(port)
			l, err := net.Listen("tcp", at)
			if err != nil {
				return errors.Join(fleet.ErrPortTaken, err)
			}
			return l.Close()
		})
		if err != nil {
			return stop, err
		}
		r, err := relay.New(at)
		if err != nil {
			return stop, err
		}
		t.answers, addrs = append(t.answers, r), append(addrs, at)
	}
	t.daemons = &processes{log: t.history, broken: broken, config: func(i int) client.Config {
		return client.Config{Who: noClient, Daemon: program, URLs: urls, Over: addrs[i]}
	}}
	for i := range addrs {
		if err := t.daemons.start(i); err != nil {
			return stop, err
		}
	}
	return stop, nil
}
