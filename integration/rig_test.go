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
	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/internal/testenv"
)

// A rig is a fleet of five servers that tests of its kind use in turn, because starting one takes
// longer than most tests. Each test starts with a healthy and empty fleet.
type rig struct {
	fleet.Fleet
	ways []*relay.Relay // relays in front of the nodes, for cutting clients off; or nil

	mu     sync.Mutex
	broken map[int]fault
}

const nodes = 5

// stables contain the unused rigs; nil stands for a rig that is not started yet. The capacity is
// the number of concurrent tests, which wait most of the time.
var stables = map[fleet.Kind]chan *rig{fleet.Process: stable(4), inContainers: stable(2)}

func stable(size int) chan *rig {
	rigs := make(chan *rig, size)
	for range size {
		rigs <- nil
	}
	return rigs
}

// onEveryKind runs the test on processes and, if all tests run in containers, on containers at the
// same time.
func onEveryKind(t *testing.T, test func(t *testing.T, r *rig)) {
	if testenv.Containers() {
		onContainersToo(t, test)
		return
	}
	t.Parallel()
	onKind(t, fleet.Process, test)
}

// onContainersToo runs the test on processes and, if this machine has Docker, on containers. It is
// for one or two tests of each kind.
func onContainersToo(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	onKind(t, fleet.Process, test)
	onKind(t, inContainers, test)
}

func onKind(t *testing.T, kind fleet.Kind, test func(t *testing.T, r *rig)) {
	t.Run(string(kind), func(t *testing.T) {
		t.Parallel()
		test(t, take(t, kind))
	})
}

// take gives a rig of a kind to the test. After the test, all nodes are healed, and must be free of
// keys and connections.
func take(t *testing.T, kind fleet.Kind) *rig {
	t.Helper()
	need(t, kind)
	r := <-stables[kind]
	if r == nil {
		f, err := start(kind, fleet.Options{Nodes: nodes, Persistence: unsynced(nodes)})
		if err != nil {
			stables[kind] <- nil
			t.Fatal(err)
		}
		r = &rig{Fleet: f, broken: map[int]fault{}}
	}
	t.Cleanup(func() {
		defer func() {
			if t.Failed() { // a failed test must not make other tests fail
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

// unsynced is the persistence of n nodes. A disk with slow syncs would stop all nodes at once, for
// seconds.
func unsynced(n int) []fleet.Persistence {
	return slices.Repeat([]fleet.Persistence{fleet.Unsynced}, n)
}

// newRig starts separate servers, for a test that breaks them permanently or needs other settings.
func newRig(t *testing.T, opts fleet.Options) *rig {
	t.Helper()
	if !opts.Volatile {
		opts.Persistence = unsynced(opts.Nodes)
	}
	f := testenv.Servers(t, fleet.Process, opts)
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

// each runs do for all nodes concurrently.
func (r *rig) each(do func(i int) error) error {
	var all []int
	for i := range r.URLs() {
		all = append(all, i)
	}
	return r.some(all, do)
}

// some runs do for some nodes concurrently.
func (r *rig) some(which []int, do func(i int) error) error {
	errs := make([]error, len(which))
	var wg sync.WaitGroup
	for n, i := range which {
		wg.Go(func() { errs[n] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// addr returns the address of node i, which is also its name in errors.
func (r *rig) addr(i int) string { return strings.TrimPrefix(r.Fleet.URLs()[i], "redis://") }

// URLs returns the URLs for clients.
func (r *rig) URLs() []string {
	if r.ways == nil {
		return r.Fleet.URLs()
	}
	var all []string
	for _, way := range r.ways {
		all = append(all, way.URL())
	}
	return all
}

// connect returns a plain connection to node i, like an operator's.
func (r *rig) connect(i int) (redis.Conn, error) { return dial("tcp", r.addr(i)) }

func dial(network, address string) (redis.Conn, error) {
	return redis.Dial(network, address,
		redis.DialConnectTimeout(failAfter), redis.DialReadTimeout(failAfter), redis.DialWriteTimeout(failAfter))
}

// do sends a command to node i on a separate connection.
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

// must is like do, for commands that cannot fail.
func (r *rig) must(t *testing.T, i int, cmd string, args ...any) any {
	t.Helper()
	v, err := r.do(i, cmd, args...)
	require.NoError(t, err)
	return v
}

// version returns the version line of node i, such as redis_version:7.0.15. Valkey adds another
// line.
func (r *rig) version(t *testing.T, i int) string {
	t.Helper()
	info, err := redis.String(r.must(t, i, "INFO", "server"), nil)
	require.NoError(t, err)
	return strings.Join(regexp.MustCompile(`(?:redis|valkey)_version:\S+`).FindAllString(info, -1), " ")
}

// awaitInfo waits until a section of node i's INFO contains the text.
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

// statistic returns a number from node i's INFO, or zero if it is missing.
func (r *rig) statistic(t *testing.T, i int, section, name string) int {
	t.Helper()
	info, err := redis.String(r.must(t, i, "INFO", section), nil)
	require.NoError(t, err)
	_, after, _ := strings.Cut(info, "\r\n"+name)
	n, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(after))
	return n
}

// relayed puts a relay, which can simulate network faults, in front of a server.
func relayed(t *testing.T, server string) *relay.Relay {
	t.Helper()
	way, err := relay.New(server)
	require.NoError(t, err)
	t.Cleanup(way.Close)
	return way
}

// settle waits until every node has the given number of clients, and no key.
//
// The order matters: an abandoned connection may hold a SET that the server has not seen. A missing
// key is missing permanently only after that connection is closed.
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

// checkClients counts the clients of a node, without c itself.
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

// A fault is a way in which a node fails and recovers.
type fault struct {
	name  string
	begin func(*rig, context.Context, int) error
	end   func(*rig, context.Context, int) error
}

var (
	paused = fault{"paused", (*rig).Pause, (*rig).Resume}
	killed = fault{"killed", (*rig).Kill, func(r *rig, ctx context.Context, i int) error {
		return r.Restart(ctx, i, fleet.Kept)
	}}
	disconnected = fault{"disconnected", (*rig).cutOff, func(r *rig, _ context.Context, i int) error {
		r.ways[i].Heal()
		return nil
	}}
)

// cutOff drops all messages between clients and node i.
func (r *rig) cutOff(_ context.Context, i int) error {
	for _, way := range []relay.Direction{relay.Requests, relay.Replies} {
		r.ways[i].Break(way, relay.Fault{Mode: relay.Drop})
	}
	return nil
}

// onEveryFault runs the test with each fault.
func onEveryFault(t *testing.T, r *rig, test func(t *testing.T, r *rig, f fault)) {
	for _, f := range []fault{paused, killed} {
		t.Run(f.name, func(t *testing.T) { test(t, r, f) })
	}
	t.Run(disconnected.name, func(t *testing.T) {
		behind := &rig{Fleet: r.Fleet, broken: map[int]fault{}}
		for i := range nodes {
			behind.ways = append(behind.ways, relayed(t, r.addr(i)))
		}
		test(t, behind, disconnected)
	})
}

// fail makes nodes fail, all at once, until heal is called or the test ends. It skips the test if
// the operating system or the Docker engine does not support the fault.
func (r *rig) fail(t *testing.T, f fault, which ...int) {
	t.Helper()
	t.Cleanup(func() { r.heal(t) })
	err := r.some(which, func(i int) error {
		err := f.begin(r, context.Background(), i)
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

// heal restores all failing nodes.
func (r *rig) heal(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	broken := maps.Clone(r.broken)
	r.mu.Unlock()
	require.NoError(t, r.some(slices.Collect(maps.Keys(broken)), func(i int) error {
		err := broken[i].end(r, context.Background(), i)
		if err == nil {
			r.mu.Lock()
			delete(r.broken, i)
			r.mu.Unlock()
		}
		return err
	}))
}
