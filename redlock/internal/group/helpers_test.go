package group_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/group"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/sets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl     = 3 * time.Second
	timeout = time.Second
)

// serversOf are the servers of each group. Groups r and s share some with a, so they have a prefix.
var serversOf = map[string][]int{"a": {0, 1, 2}, "b": {3, 4, 5}, "c": {6, 7, 8}, "r": {0, 1, 8}, "s": {0, 1, 2}}

// A setup is what a client knows of the map: groups with + for one that joins and - for one that leaves.
type setup struct {
	version int
	groups  string
	ahead   time.Duration // of its wall clock
}

func (s setup) isChange() bool { return strings.ContainsAny(s.groups, "+-") }

// of returns the groups for a process.
func (s setup) of(c *sim.Client) (all []group.Group) {
	nodes := c.Nodes()
	for i, name := range strings.Fields(s.groups) {
		g := group.Group{Name: name[:1], Joining: name[1:] == "+", Leaving: name[1:] == "-"}
		if g.Name == "r" || g.Name == "s" {
			g.Prefix = g.Name + ":"
		}
		if i > 0 {
			nodes = c.MoreNodes()
		}
		for _, server := range serversOf[g.Name] {
			g.Nodes = append(g.Nodes, nodes[server])
		}
		all = append(all, g)
	}
	return all
}

// A client is a process with Groups.
type client struct {
	*group.Groups
	terms core.Terms
	clock clock.Clock
	onEnd func()
}

// A lock is what a caller has of a name, as package redlock composes it of the parts.
type lock struct {
	*engine.Bond
	client *client
	name   string
	places []*group.Place
	token  int64
	ended  chan end // gets one
}

// An end is how a lock has ended.
type end struct {
	group      string
	reason     core.Reason
	ofPresence bool // the presence in the group has ended, and not the lock of the name
}

// A way is how a caller gets a set.
type way func(context.Context, *sets.Set) (*engine.Bond, *sets.Failure, error)

// take begins again if the lock, or a presence, is lost before the caller has it.
func (c *client) take(ctx context.Context, name string, t *core.Terms, get way) (*lock, error) {
	for {
		l := &lock{client: c, name: name, places: c.Places(name), ended: make(chan end, 1)}
		err := l.take(ctx, t, get)
		if err == nil && l.Own(l) {
			return l, nil
		}
		l.leave()
		if err != nil {
			return nil, err
		}
	}
}

func (l *lock) take(ctx context.Context, t *core.Terms, get way) (err error) {
	set := sets.Set{Terms: t}
	for _, p := range l.places {
		if err := p.Enter(ctx); err != nil {
			return err
		}
		set.Targets = append(set.Targets, engine.Target{Engine: p.Engine(), Key: p.Key(l.name)})
	}
	var f *sets.Failure
	if l.Bond, f, err = get(ctx, &set); l.Bond == nil {
		return l.failure(f, err)
	}
	var none *core.Failure
	if l.token, none = sets.Agree(ctx, l.Locks()); none != nil && none.Kind != core.NotHeld { // else Own tells
		l.Drop()
		return l.failure(&sets.Failure{Failure: none}, ctx.Err())
	}
	for _, p := range l.places {
		if err := p.Join(ctx, l.Bond); err != nil {
			l.Drop()
			return err
		}
	}
	return nil
}

// failure is why there is no lock.
func (l *lock) failure(f *sets.Failure, err error) error {
	switch {
	case f == nil:
		return err
	case f.Kind == core.AfterClose:
		return group.ErrClosed
	}
	return &failure{f.Failure, l.places[max(f.Target, 0)].Name(), err}
}

// A failure is why a caller has not got a lock.
type failure struct {
	*core.Failure
	group string
	err   error
}

func (f *failure) Error() string {
	return fmt.Sprintf("no lock in group %s: %d, %v", f.group, f.Kind, f.err)
}
func (f *failure) Unwrap() error { return f.err }

// leave says that the presences need not tell the lock any more.
func (l *lock) leave() {
	for _, p := range l.places {
		p.Leave(l.Bond)
	}
}

// Ended implements engine.Owner.
func (l *lock) Ended(of engine.Lock) {
	l.leave()
	if l.client.onEnd != nil {
		l.client.onEnd()
	}
	for _, p := range l.places {
		if t := of.Target(); t.Engine == p.Engine() {
			l.ended <- end{p.Name(), of.Reason, t.Key != p.Key(l.name)}
		}
	}
}

// Extended implements engine.Owner.
func (l *lock) Extended(engine.Lock) {}

// Deadline is when the lock ends if nothing extends it; zero if it has ended.
func (l *lock) Deadline() clock.Instant {
	until := l.Bond.Deadline()
	for _, p := range l.places {
		until = min(until, p.Until())
	}
	return until
}

// groups returns the names of the groups that the lock is in.
func (l *lock) groups() (names []string) {
	for _, p := range l.places {
		names = append(names, p.Name())
	}
	return names
}

// config returns that of the process.
func config(p *sim.Client, s setup, guarded bool) group.Config {
	return group.Config{
		Version: s.version, Groups: s.of(p), TTL: ttl, Timeout: timeout, Clock: p.Clock(), Wall: time.Now,
		Jitter: func(d time.Duration) time.Duration { return rand.N(max(d, 1)) },
		Engine: func(g group.Group, prefix string) *engine.Engine {
			c := engine.Config{Nodes: g.Nodes, Clock: p.Clock(), Wall: func() time.Time { return time.Now().Add(s.ahead) }}
			if guarded {
				of := guard.Terms{Key: prefix + record.Key, Timeout: timeout, MaxTTL: ttl, Life: record.DrawLife}
				of.Generation = func() string { return record.New("", 1).Generation }
				c.Guard = &of
			}
			return engine.New(c)
		},
	}
}

func newClient(t *testing.T, p *sim.Client, s setup, guarded bool) *client {
	c := &client{clock: p.Clock()}
	c.terms = core.Terms{TTL: ttl, Timeout: timeout, Renew: true, Patience: timeout}
	var err error
	c.Groups, err = group.New(config(p, s, guarded))
	require.NoError(t, err)
	return c
}

// open returns a client of a new process.
func open(t *testing.T, w *sim.World, version int, groups string) *client {
	p := w.NewClient(1)
	c := newClient(t, p, setup{version: version, groups: groups}, false)
	t.Cleanup(func() { p.Resume(); c.shut(t) })
	return c
}

// fenced returns a client whose locks have tokens.
func fenced(t *testing.T, w *sim.World, s setup) *client {
	p := w.NewClient(1)
	c := newClient(t, p, s, false)
	c.terms.Fenced = true
	t.Cleanup(func() { p.Resume(); c.shut(t) })
	return c
}

// shut closes the Groups, and waits for the nodes.
func (c *client) shut(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*timeout)
	defer cancel()
	assert.NoError(t, c.Close(ctx))
}

func (c *client) try(name string) (*lock, error) {
	return c.take(context.Background(), name, &c.terms, once)
}

func once(ctx context.Context, s *sets.Set) (*engine.Bond, *sets.Failure, error) {
	return s.Try(ctx, engine.Schedule{})
}

func wait(ctx context.Context, s *sets.Set) (*engine.Bond, *sets.Failure, error) {
	return s.Acquire(ctx)
}

// get takes a lock that is free.
func (c *client) get(t *testing.T, name string) *lock {
	t.Helper()
	l, err := c.try(name)
	require.NoError(t, err)
	return l
}

func release(t *testing.T, l *lock) {
	t.Helper()
	_, f := l.Release(t.Context())
	require.Nil(t, f)
}

// isHeld checks that another client has the name.
func isHeld(t *testing.T, err error) *failure {
	t.Helper()
	var f *failure
	require.ErrorAs(t, err, &f)
	assert.Equal(t, core.ByOther, f.Kind)
	return f
}

// nameIn returns a name that the client has in the group.
func nameIn(c *client, group string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("job-", i); c.Of(name) == group {
			return name
		}
	}
}

// movedFrom returns a name that is in group from for one client, and in group to for the other.
func moves(before *client, from string, after *client, to string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("job-", i); before.Of(name) == from && after.Of(name) == to {
			return name
		}
	}
}

// count returns how many servers of a group have a key.
func count(w *sim.World, group, key string) (n int) {
	for _, i := range serversOf[group] {
		if _, ok := w.Servers()[i].Keys()[key]; ok {
			n++
		}
	}
	return n
}

// isClean checks that the servers have nothing but the stage of the map and their records.
func isClean(t *testing.T, w *sim.World) {
	t.Helper()
	for i, s := range w.Servers() {
		for key := range s.Keys() {
			if !keys.Mark.Has(key) && !strings.HasSuffix(key, record.Key) {
				assert.Fail(t, "left on a server", "%d: %s", i, key)
			}
		}
	}
}
