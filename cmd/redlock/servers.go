package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// servers are the servers of a command, with their settings. Each part has its flags and its checks
// in a file of its own.
type servers struct {
	cli
	targets targets
	reach   reach
	locking locking
	logging logging

	opened [][]protocol.Node // nodes of each set, opened by open
}

// serverFlags adds the flags to a command, and settles them before the command runs.
func serverFlags(c *cobra.Command) *servers {
	s := &servers{cli: cli{flags: c.Flags(), stderr: io.Discard}} // no messages while a shell completes a line
	c.PreRunE = func(*cobra.Command, []string) error {
		s.stderr = c.ErrOrStderr()
		s.logging.begin(s.stderr)
		return s.settle()
	}
	own := map[string]bool{}
	s.flags.VisitAll(func(f *pflag.Flag) { own[f.Name] = true })
	s.targets.addFlags(&s.cli)
	s.reach.addFlags(&s.cli)
	s.locking.addFlags(&s.cli)
	s.flags.VisitAll(func(f *pflag.Flag) {
		if !own[f.Name] {
			s.flags.SetAnnotation(f.Name, ofServers, nil)
		}
	})
	s.logging.addFlags(s.flags)
	return s
}

// settle completes the flags by the environment and the configuration file.
func (s *servers) settle() error {
	if err := s.configure(); err != nil {
		return err
	}
	if err := s.targets.settle(); err != nil {
		return err
	}
	return s.reach.tls.check(s.targets.urls())
}

// configure is settle for a command that needs no servers of its own.
func (s *servers) configure() error {
	c, err := configure(s.flags, usualFiles())
	if err != nil {
		return err
	}
	s.targets.nodes = splitURLs(strings.Join(s.targets.nodes, " "))
	return s.reach.settle(&s.cli, c)
}

// poolOptions returns the options for package pool.
func (s *servers) poolOptions() ([]pool.Option, error) {
	opts, err := s.reach.options()
	if s.locking.nodeTimeout > time.Second { // the default StallTimeout would end the wait for an answer sooner
		opts = append(opts, pool.StallTimeout(s.locking.nodeTimeout))
	}
	if s.logging.log != nil {
		opts = append(opts, pool.Log(s.logging.log))
	}
	return opts, err
}

// start returns the sets of servers, and starts the servers of --embedded. The caller calls stop in the end.
func (s *servers) start(ctx context.Context) (sets []serverSet, stop func(), err error) {
	if !s.targets.embedded {
		return s.targets.all(), func() {}, nil
	}
	f, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{})
	if err != nil {
		return nil, nil, err
	}
	s.reach.login = credentials{}
	s.locking.guard = false // the servers are as old as this process, and no other process uses them
	return []serverSet{{urls: f.URLs()}}, func() { f.Close() }, nil
}

// open returns a Locker over the sets. Its errors are about settings, not about servers that do not
// answer.
func (s *servers) open(sets []serverSet, more ...redlock.LockerOption) (*redlock.Locker, error) {
	nodes, err := s.openSets(sets)
	if err != nil {
		return nil, err
	}
	opts := s.locking.options()
	if log := s.logging.ofVotes(); log != nil {
		opts = append(opts, redlock.Log(log))
	}
	opts = append(opts, more...)
	var locker *redlock.Locker
	if grouped(sets) {
		var of []redlock.Group
		for i, set := range sets {
			of = append(of, redlock.Group{Name: set.group, Nodes: nodes[i]})
		}
		locker, err = redlock.NewGroups(of, opts...)
	} else {
		locker, err = redlock.New(nodes[0], opts...)
	}
	if err != nil {
		return nil, s.refused(err)
	}
	s.opened = nodes
	return locker, nil
}

// disconnect stops all requests of the Locker. Its locks stay on the servers.
func (s *servers) disconnect() {
	var all sync.WaitGroup
	for _, node := range slices.Concat(s.opened...) {
		all.Go(func() { node.Close() })
	}
	all.Wait()
}

// openSets returns the servers of each set as nodes, which the caller closes. It connects to all at
// once.
func (s *servers) openSets(sets []serverSet) ([][]protocol.Node, error) {
	nodes := make([][]protocol.Node, len(sets))
	err := atOnce(len(sets), func(i int) (err error) {
		nodes[i], err = s.openNodes(sets[i].urls)
		return sets[i].blame(err)
	})
	if err == nil {
		return nodes, nil
	}
	for _, n := range slices.Concat(nodes...) {
		n.Close()
	}
	return nil, err
}

// openNodes returns the servers at urls as nodes, which the caller closes.
func (s *servers) openNodes(urls []string) ([]protocol.Node, error) {
	opts, err := s.poolOptions()
	if err != nil {
		return nil, err
	}
	nodes, err := pool.OpenWith(urls, opts...)
	if err != nil {
		return nil, wrong(s.flags, s.targets.namedBy(), "%s", plain.OneLine(err.Error()))
	}
	return nodes, nil
}

// capital matches the boundary between two words of an option's name, as in NodeTimeout and MaxTTL.
var capital = regexp.MustCompile(`([a-z])([A-Z])`)

// refused returns an error of the library about settings as one about a flag, or its source. The
// options that only the library checks are named like their flags.
func (s *servers) refused(err error) error {
	if option := new(redlock.OptionError); errors.As(err, &option) {
		flag := strings.ToLower(capital.ReplaceAllString(option.Option, "$1-$2"))
		if s.flags.Lookup(flag) != nil {
			return wrong(s.flags, flag, "%s", strings.ReplaceAll(option.Reason, "MaxTTL", "--max-ttl"))
		}
	}
	return wrong(s.flags, s.targets.namedBy(), "%s", plain.OneLine(err.Error()))
}

// atATime is the number of concurrent questions.
const atATime = 64

// atOnce calls f for 0 to n-1, each in a goroutine of its own. It returns the error of the lowest number.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	slots := make(chan struct{}, atATime)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}
