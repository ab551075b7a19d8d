package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/relay"
)

// daemons is how many there are.
const daemons = 2

// noClient is above the numbers of all clients.
const noClient = 100_000

// serve builds the command and starts processes of "redlock serve", each behind a relay. What it
// returns ends them, also after an error.
func (t *trial) serve(ctx context.Context, urls []string, broken func()) (stop func() error, err error) {
	dir, err := os.MkdirTemp("", "redquorum-chaos-*")
	stop = func() (err error) {
		if t.daemons != nil {
			err = t.daemons.stop()
		}
		for _, r := range t.answers {
			r.Close()
		}
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return stop, err
	}
	program := filepath.Join(dir, "redlock")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/redlock")
	build.Dir = ".." // as of go -C chaos run
	if text, err := build.CombinedOutput(); err != nil {
		return stop, fmt.Errorf("go build ./cmd/redlock: %w: %s", err, text)
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
	t.daemons = newProcesses(t.history, client.Config{Daemon: program, URLs: urls, Patience: patience}, func(i int, c *client.Config) {
		c.Who, c.Over = c.Who+noClient, addrs[i]
	}, broken)
	for i := range addrs {
		if err := t.daemons.start(i); err != nil {
			return stop, err
		}
	}
	return stop, nil
}
