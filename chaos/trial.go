package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/judge"
	"github.com/redquorum/redquorum/chaos/internal/nemesis"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/record"
)

const (
	// slack is the longest delay that a busy machine may cause.
	slack = time.Minute
	// patience is the time that another library may take for an answer, in addition to the
	// requested wait: most libraries have timeouts of a few seconds.
	patience = 20 * time.Second
)

// There are few names, so that clients compete for them. One of them has permits.
var names = []string{"a", "b", "c"}

const permits = "p"

// A trial is one scenario, from the start of the servers to the verdict.
type trial struct {
	nemesis.Scenario
	options

	fleet    fleet.Fleet
	relays   []*relay.Relay // one a server, or none
	clocks   []fleet.Clock  // one a server, or none
	history  *history.Log
	running  *processes
	daemons  *processes
	answers  []*relay.Relay // one a daemon
	promoted []bool         // nodes whose second server is the primary
}

func (t *trial) setting() nemesis.Setting {
	return nemesis.Setting{Seed: t.seed, Duration: t.duration, Nodes: t.nodes, Clients: t.clients,
		Daemons: daemons, TTL: t.ttl}
}

// replay returns the command that repeats the same faults.
func (t *trial) replay() string {
	return fmt.Sprintf("go -C chaos run . --scenario=%s --duration=%v --seed=%d%s", t.Name, t.duration, t.seed, t.given)
}

// run plays the scenario and judges it. The history file is kept only after a violation. An
// interrupted run is judged by its events so far.
func (t *trial) run(ctx context.Context) (v *judge.Verdict, file string, err error) {
	dir := t.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "redquorum-chaos-*"); err != nil {
			return nil, "", err
		}
	}
	file = filepath.Join(dir, t.Name+".jsonl")
	defer func() {
		switch {
		case err != nil:
			err = fmt.Errorf("%w (history in %s)", err, file)
		case v.OK() && t.keep == "":
			err = os.RemoveAll(dir)
		}
	}()
	if err := t.play(ctx, file); err != nil {
		return nil, file, err
	}
	v, err = readVerdict(file, t.Wanted())
	if err == nil && ctx.Err() != nil {
		v.Violations = slices.DeleteFunc(v.Violations, func(v judge.Violation) bool {
			return v.Rule == judge.Evidence
		})
	}
	return v, file, err
}

func (t *trial) play(ctx context.Context, file string) (err error) {
	ctx, end := context.WithCancel(ctx) // ends when a client fails; stopping the client returns its error
	defer end()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	t.history, t.promoted = history.NewLog(out), make([]bool, t.nodes)

	servers := t.nodes
	if t.Standbys || t.Copies {
		servers *= 2
	}
	if t.Clocks {
		for i := range servers {
			t.clocks = append(t.clocks, fleet.Clock(fmt.Sprintf("%s.clock%d", file, i)))
			if err := t.clocks[i].Set(0); err != nil {
				return err
			}
			defer os.Remove(string(t.clocks[i]))
		}
	}
	t.fleet, err = fleet.Start(ctx, fleet.Process,
		fleet.Options{Nodes: servers, Persistence: t.Writes(servers), Clocks: t.clocks})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.fleet.Close()) }()
	direct, relayed := t.fleet.URLs(), t.fleet.URLs() // every second client uses relayed
	for i := range direct {
		if !t.Relayed && servers == t.nodes {
			break
		}
		r, err := relay.New(addr(direct[i]))
		if err != nil {
			return err
		}
		defer r.Close()
		t.relays, relayed[i] = append(t.relays, r), r.URL()
	}
	if t.Relayed {
		direct = relayed
	}
	if servers > t.nodes {
		if err := t.pair(ctx); err != nil {
			return err
		}
	}
	if t.Standbys {
		direct, relayed = withStandbys(direct), withStandbys(relayed)
	}
	direct, relayed = direct[:t.nodes], relayed[:t.nodes]
	reg, err := client.ServeRegister(t.history)
	if err != nil {
		return err
	}
	defer reg.Close()

	program := t.redlock
	if program == "" && (t.Served || t.ByRun) {
		var dir string
		dir, program, err = build(ctx)
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		if err != nil {
			return err
		}
	}
	if t.Served {
		var stop func() error
		stop, err = t.serve(program, direct, end)
		defer func() { err = errors.Join(err, stop()) }()
		if err != nil {
			return err
		}
	}
	work := [2]time.Duration{0, t.ttl * 3 / 10}
	if t.Busy {
		work = [2]time.Duration{t.ttl / 2, t.ttl * 9 / 10}
	}
	t.running = &processes{log: t.history, broken: end, config: func(i int) client.Config {
		c := client.Config{Other: t.client, URLs: [2][]string{direct, relayed}[i%2],
			Register: reg.Addr, Locks: t.locks, Names: names, Permits: permits, Seed: t.seed, TTL: t.ttl,
			Guard: !t.noGuard, Work: work, ClockOffset: clockOffsets[i%len(clockOffsets)]}
		if t.ByRun && i%2 == 1 {
			c.Run, c.Work = program, [2]time.Duration{t.ttl, 2 * t.ttl}
		}
		if t.Served && i%2 == 1 {
			c.Over = t.answers[i/2%len(t.answers)].Addr()
		}
		return c
	}}
	defer func() { err = errors.Join(err, t.running.stop()) }()
	for i := range t.clients {
		if err := t.running.start(i); err != nil {
			return err
		}
	}
	return t.disturb(ctx)
}

// disturb lets the clients settle, carries out the plan, lets them settle again, and looks for
// remaining keys after they have ended.
func (t *trial) disturb(ctx context.Context) error {
	if err := t.awaitGrants(ctx, 0); err != nil && ctx.Err() == nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	err := nemesis.Run(ctx, t.Plan(t.setting()), nemesis.World{Faults: t.faults(), Log: t.history})
	if err != nil {
		return err
	}
	calm := history.Now()
	if ctx.Err() == nil {
		t.history.Add(history.Event{At: calm, Kind: history.Calm})
		t.awaitGrants(ctx, calm) // its error is ignored, because the rules find a lock that was not granted
	}
	if err := t.running.stop(); err != nil {
		return err
	}
	return cmp.Or(t.noteLeftKeys(), t.history.Err())
}

// awaitGrants waits until each name and each kind of lock was granted after the time since. Servers
// that forgot are in quarantine for one TTL, and a lock may be held for two TTLs.
func (t *trial) awaitGrants(ctx context.Context, since int64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*t.ttl+slack)
	defer cancel()
	awaited := t.running.config(0).Asked()
	if t.client == "" {
		awaited = append(awaited, texts(t.locks)...)
	}
	err := poll(ctx, func() (bool, error) {
		awaited = slices.DeleteFunc(awaited, func(about string) bool { return t.history.Last(history.Granted, about) > since })
		return len(awaited) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("no client gets the lock %q: %w", awaited[0], err)
	}
	return nil
}

// poll calls done until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readVerdict judges the history in a file.
func readVerdict(file string, wanted [][]string) (*judge.Verdict, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var events []history.Event
	if err := history.Read(in, func(e history.Event) { events = append(events, e) }); err != nil {
		return nil, err
	}
	return judge.History(events, wanted)
}

func addr(url string) string { return strings.TrimPrefix(url, "redis://") }

// askServer asks a server, which must be healthy, on a connection of its own.
func (t *trial) askServer(ctx context.Context, i int, cmd string, args ...any) (any, error) {
	c, err := redis.DialContext(ctx, "tcp", addr(t.fleet.URLs()[i]), redis.DialReadTimeout(slack),
		redis.DialWriteTimeout(slack))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(cmd, args...)
}

// noteLeftKeys looks for keys of locks after all clients have ended, and records the keys that still
// exist when they must have expired. The intent of a killed writer lives for a second and two node
// timeouts.
func (t *trial) noteLeftKeys() error {
	const intent = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), max(t.ttl, intent)+500*time.Millisecond)
	defer cancel()
	for i := range t.nodes {
		var there []string
		primary, _ := t.serversOf(i)
		err := poll(ctx, func() (bool, error) {
			keys, err := redis.Strings(t.askServer(context.Background(), primary, "KEYS", "*"))
			there = left(keys)
			return len(there) == 0, err
		})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("node %d: %w", i, err)
		}
		for _, key := range there {
			ttl, err := redis.Int64(t.askServer(context.Background(), primary, "PTTL", key))
			if err != nil {
				return err
			}
			if ttl == -2 { // expired while the machine stood still
				continue
			}
			t.history.Add(history.Event{At: history.Now(), Kind: history.Left, Who: i, Name: key, Text: fmt.Sprintf("for %d ms", ttl)})
		}
	}
	return nil
}

// left returns the keys that hold or block a lock. The record of the memory guard, the counters of
// tokens, the numbers of permits and the name of a primary stay. The queues of waiters expire later.
func left(all []string) []string {
	return slices.DeleteFunc(all, func(key string) bool {
		return key == record.Key || key == record.PrimaryKey || keys.Counter.Has(key) || keys.Number.Has(key) || keys.Queue.Has(key)
	})
}

// texts are the kinds as flags and histories name them.
func texts(locks []history.Lock) (all []string) {
	for _, l := range locks {
		all = append(all, string(l))
	}
	return all
}
