package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool/internal/link"
)

// A pair is two real servers. The second is a replica of the first.
type pair struct {
	fleet.Fleet
	t     *testing.T
	conns [2]redis.Conn
}

func newPair(t *testing.T) *pair {
	t.Helper()
	testenv.NeedRedis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: 2, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	p := &pair{Fleet: f, t: t}
	for i, u := range f.URLs() {
		p.conns[i], err = redis.DialURL(u)
		require.NoError(t, err)
		t.Cleanup(func() { p.conns[i].Close() })
	}
	p.demote(1)
	return p
}

func (p *pair) do(i int, args ...any) any {
	p.t.Helper()
	v, err := p.conns[i].Do(args[0].(string), args[1:]...)
	require.NoError(p.t, err)
	return v
}

func (p *pair) addr(i int) string { return strings.TrimPrefix(p.URLs()[i], "redis://") }

// url names the first server, with the other as its standby.
func (p *pair) url() string { return p.URLs()[0] + "?standby=" + p.addr(1) }

func (p *pair) promote(i int) { p.do(i, "REPLICAOF", "NO", "ONE") }

// demote makes server i a replica of the other, and waits until it has taken over the other's data.
func (p *pair) demote(i int) {
	p.t.Helper()
	at, err := url.Parse(p.URLs()[1-i])
	require.NoError(p.t, err)
	p.do(i, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
	p.do(1-i, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
	p.do(i, "REPLICAOF", at.Hostname(), at.Port())
	eventually(p.t, func() bool {
		role, err := redis.Values(p.do(i, "ROLE"), nil)
		state, _ := redis.String(role[3], err)
		return state == "connected"
	}, "the replica has its primary's data")
}

// holder returns the server that holds the key, or -1.
func (p *pair) holder(key string) int {
	p.t.Helper()
	for i := range p.conns {
		if role, _ := redis.Values(p.do(i, "ROLE"), nil); string(role[0].([]byte)) == "master" && p.do(i, "EXISTS", key).(int64) == 1 {
			return i
		}
	}
	return -1
}

// roles of the rigs of a pair
var primary, replica = []any{"master", 0}, []any{"slave", "127.0.0.1", 1, "connected", 0}

// recorded returns a vote that is confirmed by an epoch record.
func recorded(key string) protocol.Request {
	r := acquire(key, "v-"+key)
	r.Epoch = "redlock:epoch"
	return r
}

// settled requests votes, each on a new key, until wanted accepts a reply. On a busy machine the
// first connection to a pair can fail, because the clocks of its servers may seem to be apart.
func settled(t *testing.T, n protocol.Node, key string, wanted func(protocol.Reply) bool) (r protocol.Reply) {
	t.Helper()
	tries := 0
	eventually(t, func() bool {
		tries++
		r = try(t, n, recorded(fmt.Sprint(key, tries)))
		return wanted(r)
	}, "what is wanted of "+key)
	return r
}

// granted waits for a vote.
func granted(t *testing.T, n protocol.Node, key string) {
	t.Helper()
	settled(t, n, key, func(r protocol.Reply) bool { return r.Outcome == protocol.Granted })
}

// TestNodeFollowsItsPrimary: its second connection does so, too.
func TestNodeFollowsItsPrimary(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	n := openNode(t, p.url())
	assert.Equal(t, p.addr(0)+"+"+p.addr(1), n.String())
	granted(t, n, "first")
	first := do(t, n, recorded("a"))
	require.Equal(t, protocol.Granted, first.Outcome, first.Err)
	assert.Equal(t, 0, p.holder("a"))
	confirmed, err := redis.String(p.do(0, "GET", primaryKey), nil)
	require.NoError(t, err)
	assert.Equal(t, first.Run, confirmed)
	w := wait(t, n, "k")
	w.next() // from now on the node can send hints

	p.promote(1)
	p.demote(0)
	granted(t, n, "b")
	second := do(t, n, recorded("c"))
	require.Equal(t, protocol.Granted, second.Outcome, second.Err)
	assert.Equal(t, 1, p.holder("c"))
	assert.NotEqual(t, first.Run, second.Run, "the guard must notice")
	eventually(t, func() bool {
		w.ask()
		for len(w.hints) > 0 { // drops the hints about the new ability to send hints
			<-w.hints
		}
		p.do(1, "SET", "k", "v")
		select {
		case <-w.hints:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	}, "the new one gives hints")
}

// A client that cannot see that the former primary has stopped does not trust the new one, even if
// all others do. After the confirmation, one standby may be down.
func TestPrimaryVotesWhenTheOthersAreItsReplicas(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	wire, err := relay.New(p.addr(0))
	require.NoError(t, err)
	t.Cleanup(wire.Close)
	behind := wire.URL() + "?standby=" + p.addr(1)
	old := openNode(t, p.url())
	granted(t, old, "a")
	p.promote(1) // the first server does not notice
	late := openNode(t, behind)
	require.Equal(t, protocol.Granted, do(t, late, recorded("b")).Outcome)
	assert.Equal(t, 0, p.holder("b"), "it votes for as long as it is a primary")

	wire.Break(relay.Requests, relay.Fault{Mode: relay.Drop})
	blind := openNode(t, behind, DialTimeout(time.Second))
	err = trouble(t, blind, recorded("c"))
	assert.ErrorIs(t, err, errNoVote)
	assert.ErrorContains(t, err, strings.TrimPrefix(wire.URL(), "redis://"), "it says which one to look at")

	p.demote(0)
	wire.Heal()
	wire.Reset()
	granted(t, blind, "d")
	require.Equal(t, protocol.Granted, do(t, blind, recorded("e")).Outcome)
	assert.Equal(t, 1, p.holder("e"))
	require.NoError(t, p.Kill(t.Context(), 0))
	newcomer := openNode(t, p.url(), DialTimeout(time.Second))
	granted(t, newcomer, "f")
}

// The connection survives a failover and a failback, but then belongs to another generation: that
// is confirmed again, and until then no request is written for it.
func TestConnectionEndsWithItsGeneration(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*testing.T, protocol.Node) protocol.Reply{
		"a vote": func(t *testing.T, n protocol.Node) protocol.Reply {
			return do(t, n, recorded("b"))
		},
		"the record": func(t *testing.T, n protocol.Node) protocol.Reply {
			return do(t, n, protocol.Request{Op: protocol.OpAdmit, Key: "redlock:epoch", Admit: &protocol.Admission{}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			n := openNode(t, p.url())
			granted(t, n, "a")
			p.promote(1)
			p.demote(0)
			p.promote(0)
			before := ask(t, n)
			assert.Equal(t, protocol.Unknown, before.Outcome)
			assert.ErrorIs(t, before.Err, link.ErrSucceeded)
			settled(t, n, "c", func(r protocol.Reply) bool {
				require.NotEqual(t, protocol.Granted, r.Outcome)
				return strings.Contains(r.Err.Error(), "2 of them are primaries")
			})
			p.demote(1)
			granted(t, n, "d")
		})
	}
}

// TestServerOfAPairIsNotUsedAlone: a connection that is older than the confirmation is not an
// exception.
func TestServerOfAPairIsNotUsedAlone(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	alone := openNode(t, p.URLs()[0])
	require.Equal(t, protocol.Granted, do(t, alone, recorded("a")).Outcome)
	n := openNode(t, p.url())
	granted(t, n, "b")
	granted(t, openNode(t, p.URLs()[0]), "while it is the confirmed one")
	p.promote(1)
	p.demote(0)
	granted(t, n, "c")
	eventually(t, func() bool { return p.do(0, "EXISTS", primaryKey).(int64) == 1 }, "the replica knows the second")
	p.promote(0)
	read := protocol.Request{Op: protocol.OpAdmit, Key: "redlock:epoch", Admit: &protocol.Admission{}}
	assert.ErrorIs(t, do(t, alone, read).Err, link.ErrSucceeded)
	refused := settled(t, alone, "d", func(r protocol.Reply) bool {
		return r.Outcome == protocol.Failed && !errors.Is(r.Err, link.ErrSucceeded)
	})
	for _, err := range []error{refused.Err, trouble(t, openNode(t, p.URLs()[0]), recorded("e"))} {
		assert.ErrorContains(t, err, "standbys")
		assert.ErrorContains(t, err, primaryKey)
	}
}

func TestPairFailsOverAndNeedsItsCommands(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	assert.True(t, openNode(t, "redis://127.0.0.1:1?standby=127.0.0.1:2").(protocol.Forgetful).Forgets())
	assert.False(t, openNode(t, "redis://127.0.0.1:1").(protocol.Forgetful).Forgets())
	for rights, says := range map[string]string{"-info": "permit INFO", "-role": "permit INFO and ROLE", "-set": primaryKey} {
		t.Run(rights, func(t *testing.T) {
			for i := range p.conns {
				p.do(i, "ACL", "SETUSER", "user"+rights, "on", ">password", "~*", "+@all", rights)
			}
			n := openNode(t, strings.Replace(p.url(), "//", "//user"+rights+":password@", 1))
			eventually(t, func() bool {
				err := trouble(t, n, recorded("b"))
				return errors.Is(err, errNoVote) && strings.Contains(err.Error(), says) && strings.Contains(err.Error(), p.addr(0))
			}, says)
		})
	}
}

// A silent standby causes no wait once the primary is confirmed.
func TestConfirmedPrimaryWaitsForNoStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	granted(t, openNode(t, p.url()), "a")
	wire, err := relay.New(p.addr(1))
	require.NoError(t, err)
	t.Cleanup(wire.Close)
	wire.Break(relay.Replies, relay.Fault{Mode: relay.Drop})
	n := openNode(t, p.URLs()[0]+"?standby="+strings.TrimPrefix(wire.URL(), "redis://"), DialTimeout(time.Hour))
	granted(t, n, "b")
}

// TestPairsWithEqualClocksVote: other pairs do not vote. A token that a replica accepted as an
// earlier primary may be as far ahead as its clock, and its record looks older to a primary that is
// ahead. No attempt leaves a connection open.
func TestPairsWithEqualClocksVote(t *testing.T) {
	t.Parallel()
	const off = time.Minute // the clock of the second server stands still
	for name, row := range map[string]struct {
		first, second []any
		run           string // run_id of the second server
		ahead         time.Duration
		says          string // error of the node; empty if it votes
	}{
		"two primaries":    {primary, primary, "run2", 0, "2 of them are primaries"},
		"two replicas":     {replica, replica, "run2", 0, ": " + ErrReplica.Error()},
		"one server":       {primary, primary, "run1", 0, "lead to one server"},
		"a replica":        {primary, replica, "run2", 0, ""},
		"a replica ahead":  {primary, replica, "run2", off, "set the clocks"},
		"a replica behind": {primary, replica, "run2", -off, "set the clocks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newRig(t), newRig(t)
			first.role, second.role, second.runID = row.first, row.second, row.run
			if row.ahead != 0 {
				second.SetTime(time.Now().Add(row.ahead))
			}
			var dialled sync.Map // prevents the collector from closing connections that the node has forgotten
			n := openNode(t, first.url()+"?standby="+second.Addr(), NetDial(func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, address)
				dialled.Store(c, true)
				return c, err
			}))
			if row.says == "" {
				granted(t, n, "a")
			} else {
				err := trouble(t, n, recorded("a"))
				assert.ErrorIs(t, err, errNoVote)
				assert.ErrorContains(t, err, row.says)
			}
			require.NoError(t, n.Close())
			eventually(t, func() bool { return first.CurrentConnectionCount()+second.CurrentConnectionCount() == 0 }, "no connection is left")
		})
	}
}

func TestDialerOfAPairReachesThePrimary(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.promote(1)
	p.demote(0)
	name, dial, err := Dialer(p.url(), patient()...)
	require.NoError(t, err)
	assert.Equal(t, p.addr(0)+"+"+p.addr(1), name)
	c, err := dial(context.Background())
	require.NoError(t, err)
	defer c.Close()
	role, err := redis.Values(c.Do("ROLE"))
	require.NoError(t, err)
	assert.Equal(t, []byte("master"), role[0])
	assert.EqualValues(t, 0, p.do(1, "EXISTS", primaryKey), "tools change nothing")
	p.do(1, "REPLICAOF", "127.0.0.1", "1")
	_, err = dial(context.Background())
	assert.ErrorIs(t, err, errNoVote)
}

// TestStandbyIsCheckedAfterThePrimaryIsKnown: its earlier role proves nothing about the time since
// then.
func TestStandbyIsCheckedAfterThePrimaryIsKnown(t *testing.T) {
	t.Parallel()
	first, second := newRig(t), newRig(t)
	first.role, second.role, second.runID = primary, replica, "run2"
	url := first.url() + "?standby=" + second.Addr()
	first.hangAt("TIME") // the first question after its identity
	n := openNode(t, url)
	eventually(t, first.hangs, "the primary is known")
	second.set(func() { second.role = primary })
	to := submit(t, n, recorded("b")) // waits for the first attempt to connect
	first.goOn()
	reply := to.next(t)
	assert.Equal(t, protocol.Failed, reply.Outcome)
	assert.ErrorIs(t, reply.Err, errNoVote)
	assert.ErrorIs(t, reply.Err, errPrimary)
	assert.False(t, first.Exists(primaryKey))
}

// TestServerThatFailedOverAndBackHasNoOwnData: clients that use it alone treat it as another
// server, even if no field reports its promotion any longer, and even if its statistics were reset
// afterwards.
func TestServerThatFailedOverAndBackHasNoOwnData(t *testing.T) {
	t.Parallel()
	replication := func(p *pair) string {
		text, err := redis.String(p.do(0, "INFO", "replication"), nil)
		require.NoError(t, err)
		return text
	}
	for name, hide := range map[string]func(*pair){
		"the backlog is freed": func(p *pair) {
			p.do(0, "CONFIG", "SET", "repl-backlog-ttl", 1)
			eventually(t, func() bool { return strings.Contains(replication(p), "repl_backlog_active:0") }, "it is freed")
			require.Contains(t, replication(p), "second_repl_offset:-1")
		},
		"statistics are reset": func(p *pair) { p.do(0, "CONFIG", "RESETSTAT") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			live{p.Fleet, t}.since("7.0", "INFO tells what was read as a replica")
			before := do(t, openNode(t, p.URLs()[0]), recorded("a")).Run
			require.Equal(t, record.OwnData, before[strings.Index(before, "/")+1:])
			p.promote(1)
			p.do(0, "SET", "lost", "v") // data for the other to take over
			p.demote(0)
			p.promote(0)
			require.EqualValues(t, 0, p.do(0, "EXISTS", "lost"))
			hide(p)
			after := do(t, openNode(t, p.URLs()[0]), recorded("b")).Run
			assert.Equal(t, before[:41], after[:41], "the same process")
			assert.NotEqual(t, before, after)
		})
	}
}
