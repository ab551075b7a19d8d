package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/internal/relay"
)

// A rig is a fleet of five servers that tests of its kind share, one after the other, since to
// start one takes longer than most tests. Each test gets it healthy and empty.
type rig struct {
	fleet.Fleet

	mu     sync.Mutex
	broken map[int]fault
}

const nodes = 5

// stables have the rigs that no test has taken; nil is one that is not started yet. So many tests
// run at the same time, most of which wait most of the time.
var stables = map[fleet.Kind]chan *rig{fleet.Process: stable(4), fleet.Docker: stable(2)}

func stable(size int) chan *rig {
	rigs := make(chan *rig, size)
	for range size {
		rigs <- nil
	}
	return rigs
}

// onEveryKind runs the test on processes and, where all is to run there, on containers at the same
// time.
func onEveryKind(t *testing.T, test func(t *testing.T, r *rig)) {
	if need.Containers() {
		onContainersToo(t, test)
		return
	}
	t.Parallel()
	onKind(t, fleet.Process, test)
}

// onContainersToo runs the test on processes and, if this machine has Docker, on containers: of each
// kind of test one or two.
func onContainersToo(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	onKind(t, fleet.Process, test)
	onKind(t, fleet.Docker, test)
}

func onKind(t *testing.T, kind fleet.Kind, test func(t *testing.T, r *rig)) {
	t.Run(string(kind), func(t *testing.T) {
		t.Parallel()
		test(t, take(t, kind))
	})
}

// take gives a rig of a kind to the test. When the test has ended, all nodes are healed, and nothing
// may be left on them: no key, and no connection.
func take(t *testing.T, kind fleet.Kind) *rig {
	t.Helper()
	need.Kind(t, kind)
	r := <-stables[kind]
	if r == nil {
		// A disk that is slow to sync would stop all nodes at once, for seconds.
		unsynced := slices.Repeat([]fleet.Persistence{fleet.Unsynced}, nodes)
		f, err := fleet.Start(context.Background(), kind, fleet.Options{Nodes: nodes, Persistence: unsynced})
		if err != nil {
			stables[kind] <- nil
			t.Fatal(err)
		}
		r = &rig{Fleet: f, broken: map[int]fault{}}
	}
	t.Cleanup(func() {
		defer func() {
			if t.Failed() { // and must not make others fail
				r.Close()
				r = nil
			}
			stables[kind] <- r
		}()
		r.heal(t)
		r.settle(t, 0)
	})
	return r
}

// newRig starts servers of its own for a test that breaks them for good, or that wants other settings.
func newRig(t *testing.T, opts fleet.Options) *rig {
	t.Helper()
	f := need.Servers(t, fleet.Process, opts)
	return &rig{Fleet: f, broken: map[int]fault{}}
}

func closeRigs() error {
	var errs []error
	for _, rigs := range stables {
		for range cap(rigs) {
			if r := <-rigs; r != nil {
				errs = append(errs, r.Close())
			}
		}
	}
	return errors.Join(errs...)
}

// each runs do for every node at once.
func (r *rig) each(do func(i int) error) error {
	var all []int
	for i := range r.URLs() {
		all = append(all, i)
	}
	return r.some(all, do)
}

// some runs do for some nodes at once.
func (r *rig) some(which []int, do func(i int) error) error {
	errs := make([]error, len(which))
	var wg sync.WaitGroup
	for n, i := range which {
		wg.Go(func() { errs[n] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// addr is the address of node i, which is also its name in errors.
func (r *rig) addr(i int) string { return strings.TrimPrefix(r.URLs()[i], "redis://") }

// connect returns a plain connection to node i, as an operator has one.
func (r *rig) connect(i int) (redis.Conn, error) { return dial("tcp", r.addr(i)) }

func dial(network, address string) (redis.Conn, error) {
	return redis.Dial(network, address,
		redis.DialConnectTimeout(failAfter), redis.DialReadTimeout(failAfter), redis.DialWriteTimeout(failAfter))
}

// do asks node i on a connection of its own.
func (r *rig) do(i int, cmd string, args ...any) (any, error) {
	c, err := r.connect(i)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	v, err := c.Do(cmd, args...)
	if err != nil {
		return nil, fmt.Errorf("%s on node %d: %w", cmd, i, err)
	}
	return v, nil
}

// must is do for commands that cannot fail.
func (r *rig) must(t *testing.T, i int, cmd string, args ...any) any {
	t.Helper()
	v, err := r.do(i, cmd, args...)
	require.NoError(t, err)
	return v
}

// version returns what node i says of its version: redis_version:7.0.15, or another for Valkey beside.
func (r *rig) version(t *testing.T, i int) string {
	t.Helper()
	info, err := redis.String(r.must(t, i, "INFO", "server"), nil)
	require.NoError(t, err)
	return strings.Join(regexp.MustCompile(`(?:redis|valkey)_version:\S+`).FindAllString(info, -1), " ")
}

// awaitInfo waits until a section of node i's INFO has the text.
func (r *rig) awaitInfo(t *testing.T, i int, section, text string) {
	t.Helper()
	poll(t, failAfter, func() error {
		info, err := redis.String(r.do(i, "INFO", section))
		if err == nil && !strings.Contains(info, text) {
			err = errors.New(info)
		}
		return err
	})
}

// statistic returns one of INFO's numbers of node i, zero if there is none of the name.
func (r *rig) statistic(t *testing.T, i int, section, name string) int {
	t.Helper()
	info, err := redis.String(r.must(t, i, "INFO", section), nil)
	require.NoError(t, err)
	_, after, _ := strings.Cut(info, "\r\n"+name)
	n, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(after))
	return n
}

// relayed puts a network that can fail before a server.
func relayed(t *testing.T, server string) *relay.Relay {
	t.Helper()
	way, err := relay.New(server)
	require.NoError(t, err)
	t.Cleanup(way.Close)
	return way
}

// settle waits until every node has the given number of clients, and no key.
//
// The order matters: a connection that a client has given up may hold a SET that
// the server has not seen. Only when it is gone is a missing key missing for good.
func (r *rig) settle(t *testing.T, clients int) time.Duration {
	t.Helper()
	return poll(t, failAfter, func() error {
		return r.each(func(i int) error {
			c, err := r.connect(i)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := checkClients(c, i, clients); err != nil {
				return err
			}
			return checkEmpty(c, i)
		})
	})
}

// checkClients counts the clients of a node, not counting c itself.
func checkClients(c redis.Conn, i, want int) error {
	self, err := redis.Int64(c.Do("CLIENT", "ID"))
	if err != nil {
		return err
	}
	list, err := redis.String(c.Do("CLIENT", "LIST"))
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(strings.Split(strings.TrimSpace(list), "\n"),
		func(line string) bool { return strings.HasPrefix(line, fmt.Sprintf("id=%d ", self)) })
	if len(others) != want {
		return fmt.Errorf("node %d has %d clients, want %d: %q", i, len(others), want, others)
	}
	return nil
}

func checkEmpty(c redis.Conn, i int) error {
	keys, err := redis.Strings(c.Do("KEYS", "*"))
	if err != nil {
		return err
	}
	if n := len(keys); n > 0 {
		slices.Sort(keys)
		return fmt.Errorf("node %d has %d keys left, such as %q", i, n, keys[:min(n, 3)])
	}
	return nil
}

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
	r.mu.Lock()
	broken := maps.Clone(r.broken)
	r.mu.Unlock()
	require.NoError(t, r.some(slices.Collect(maps.Keys(broken)), func(i int) error {
		err := broken[i].end(r.Fleet, context.Background(), i)
		if err == nil {
			r.mu.Lock()
			delete(r.broken, i)
			r.mu.Unlock()
		}
		return err
	}))
}
