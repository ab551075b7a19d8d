package pool

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool/internal/link"
)

// A name leads to several addresses, with the same port.
type name struct {
	hosts   atomic.Value // []string
	trouble atomic.Value // func() error that precedes the answer; nil for none
	lookups atomic.Int32
	port    string
}

// option makes a node look up the name often.
func (n *name) option() Option {
	return option(false, "", func(s *settings) { s.lookup, s.lookEvery = n.lookup, 5*time.Millisecond })
}

func (n *name) lookup(context.Context, string) ([]string, error) {
	n.lookups.Add(1)
	if trouble, _ := n.trouble.Load().(func() error); trouble != nil {
		if err := trouble(); err != nil {
			return nil, err
		}
	}
	return slices.Clone(n.hosts.Load().([]string)), nil
}

// is sets another run_id, as if the rig were a new process.
func (r *rig) is(runID string) { r.set(func() { r.runID = runID }) }

func (n *name) url() string { return "redis://redis.test:" + n.port }

// newName returns a name that leads to one server, and the listener at its second address.
func newName(t *testing.T) (*name, *rig, net.Listener) {
	t.Helper()
	r := newRig(t)
	_, port, err := net.SplitHostPort(r.Addr())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skip("there is no second address here: ", err)
	}
	t.Cleanup(func() { l.Close() })
	n := &name{port: port}
	n.hosts.Store([]string{"127.0.0.2", "127.0.0.1"})
	return n, r, l
}

// serve calls meet with each connection to l.
func serve(l net.Listener, meet func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go meet(c)
	}
}

// listen returns the address of a server that calls meet with each connection.
func listen(t *testing.T, meet func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go serve(l, meet)
	return l.Addr().String()
}

// leadTo returns a function that connects a client to a server, whose answers pass through change.
func leadTo(server string, change func([]byte)) (meet func(net.Conn)) {
	pipe := func(to, from net.Conn, change func([]byte)) {
		defer to.Close()
		defer from.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := from.Read(buf)
			change(buf[:n])
			if _, failed := to.Write(buf[:n]); failed != nil || err != nil {
				return
			}
		}
	}
	return func(c net.Conn) {
		s, err := net.Dial("tcp", server)
		if err != nil {
			c.Close()
			return
		}
		go pipe(s, c, unchanged)
		pipe(c, s, change)
	}
}

func unchanged([]byte) {}

// TestNameOfSeveralServersHasNoVote: otherwise two clients could lock the same name on different
// servers. When the name resolves to one server, the node votes again.
func TestNameOfSeveralServersHasNoVote(t *testing.T) {
	t.Parallel()
	name, first, at := newName(t)
	second := newRig(t)
	second.is("run2")
	go serve(at, leadTo(second.Addr(), unchanged))
	var log logBuffer
	n := openNode(t, name.url(), name.option(), log.log())
	err := trouble(t, n, acquire("k", "v"))
	assert.ErrorIs(t, err, errSeveral)
	assert.ErrorContains(t, err, "127.0.0.1:"+name.port+" and 127.0.0.2:"+name.port)
	assert.Equal(t, 1, log.count(n, "leads to several servers"))
	assert.False(t, first.Exists("k") || second.Exists("k"))

	_, dial, err := Dialer(name.url(), append(patient(), name.option())...)
	require.NoError(t, err)
	_, err = dial(t.Context())
	assert.ErrorIs(t, err, errSeveral, "tools say the same")

	name.hosts.Store([]string{"127.0.0.1"})
	eventually(t, n.(*node).Connected, "one server votes")
	assert.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	assert.True(t, first.Exists("k"))
}

// TestOneServerMayHaveSeveralAddresses: each address must lead to the server, or be refused as the
// only address of its kind. Any other refused address may belong to another server, which is
// restarting.
func TestOneServerMayHaveSeveralAddresses(t *testing.T) {
	t.Parallel()
	name, r, at := newName(t)
	go serve(at, leadTo(r.Addr(), unchanged))
	assert.Equal(t, protocol.Granted, do(t, openNode(t, name.url(), name.option()), acquire("a", "v")).Outcome)
	require.NoError(t, at.Close())
	assert.ErrorContains(t, trouble(t, openNode(t, name.url(), name.option()), acquire("b", "v")),
		"must lead to one server, and 127.0.0.2:"+name.port+": dial: connect: connection refused")
	name.hosts.Store([]string{"127.0.0.1", "::1"})
	n := openNode(t, name.url(), name.option())
	assert.Equal(t, protocol.Granted, do(t, n, acquire("b", "v")).Outcome)
	name.awaitLookups(t)
	assert.True(t, n.(*node).Connected(), "the same answer changes nothing")
	r.Close()
	assert.ErrorContains(t, trouble(t, openNode(t, name.url(), name.option()), acquire("c", "v")), "refused")
}

// TestUnreachableAddressMayBeAnotherServer: only an address without a listener certainly has no
// server.
func TestUnreachableAddressMayBeAnotherServer(t *testing.T) {
	t.Parallel()
	for err, none := range map[error]bool{
		syscall.ECONNREFUSED: true, syscall.ENETUNREACH: true, syscall.EADDRNOTAVAIL: true,
		syscall.EHOSTUNREACH: false, syscall.ETIMEDOUT: false, syscall.EMFILE: false, syscall.EACCES: false,
		context.DeadlineExceeded: false,
	} {
		assert.Equal(t, none, isNobodyThere(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)}), "%v", err)
	}
}

// TestSilentAddressMayBeAnotherServer: another client may have the lock on that server.
func TestSilentAddressMayBeAnotherServer(t *testing.T) {
	t.Parallel()
	name, r, _ := newName(t) // nothing accepts connections there
	patiently(t, "one address is silent", func(limit time.Duration) bool {
		err := trouble(t, openNode(t, name.url(), name.option(), DialTimeout(limit)), acquire("k", "v"))
		return strings.Contains(err.Error(), "must lead to one server, and 127.0.0.2:"+name.port+": ") && errors.Is(err, ErrStalled)
	})
	assert.False(t, r.Exists("k"))
}

// TestServersWithoutAnIdentityAreADoubt: the doubt exists only if the name has several addresses.
func TestServersWithoutAnIdentityAreADoubt(t *testing.T) {
	t.Parallel()
	name, r, at := newName(t)
	r.fail("INFO", "NOPERM this user has no permissions")
	go serve(at, leadTo(r.Addr(), unchanged))
	var log logBuffer
	n := openNode(t, name.url(), name.option(), log.log())
	assert.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	assert.Equal(t, 1, log.count(n, "its name has several addresses"))
}

// TestNodeThatReturnsToAServerHasNoVote: behind a balancer with one address, a lock on the server
// in between may still be held. Moving from each server to a new one costs no vote.
func TestNodeThatReturnsToAServerHasNoVote(t *testing.T) {
	t.Parallel()
	var servers []*rig
	for _, id := range []string{"run1", "run2", "run3"} {
		r := newRig(t)
		r.is(id)
		servers = append(servers, r)
	}
	var at atomic.Int32
	var last atomic.Pointer[net.Conn]
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", servers[at.Load()].Addr())
		if err == nil {
			last.Store(&c)
		}
		return c, err
	}
	var log logBuffer
	n := openNode(t, "redis://balancer.test", NetDial(dial), log.log())
	move := func(to int32) error {
		at.Store(to)
		(*last.Load()).Close()
		var err error
		eventually(t, func() bool {
			key := "k" + servers[at.Load()].runID
			err = try(t, n, acquire(key, "v")).Err
			return err == nil && servers[at.Load()].Exists(key) || errors.Is(err, errSeveral)
		}, "it votes or says why not")
		return err
	}
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	for _, to := range []int32{0, 1, 1, 2} {
		assert.NoError(t, move(to))
	}
	assert.ErrorIs(t, move(1), errSeveral)
	assert.Equal(t, 1, log.count(n, "leads to several servers"))
}

// TestSettledNodeVotesAgain: a settled node has led to one server for the longest known TTL, and
// for a minute. The servers that it has left stay known.
func TestSettledNodeVotesAgain(t *testing.T) {
	t.Parallel()
	for _, longest := range []time.Duration{time.Second, 10 * time.Minute} {
		var log logBuffer
		s, err := settle([]Option{log.log()})
		require.NoError(t, err)
		n := &node{doubts: doubtLog{log: s.log, node: "a", known: map[string]time.Time{}}}
		n.longest.Store(int64(longest))
		now := time.Now()
		meet := func(id string) error { return n.rememberServer(link.Server{Server: record.Server{RunID: id}}, now) }
		wait := max(longest, settleFor)
		for range 2 {
			require.NoError(t, meet("a"))
			require.NoError(t, meet("b"))
			require.ErrorIs(t, meet("a"), errSeveral)
			n.doubts.enter(aboutSeveral(n.several))
			now = now.Add(wait - time.Second)
			require.ErrorIs(t, meet("a"), errSeveral)
			now = now.Add(2 * time.Second)
			require.ErrorIs(t, meet("b"), errSeveral, "it has moved")
			require.ErrorIs(t, meet("a"), errSeveral)
			now = now.Add(wait)
			require.NoError(t, meet("a"))
			require.NoError(t, meet("a"))
			require.ErrorIs(t, meet("b"), errSeveral, "it was there")
			now = now.Add(wait)
			require.NoError(t, meet("b"))
			n.servers = nil
		}
		n.doubts.await(time.Minute)
		assert.Equal(t, 2, log.count(n, "leads to several servers"), "it is told again")
	}
}

// TestLongestTTLIsKnown: the node learns it from this client's locks and from the locks of other
// clients on record.
func TestLongestTTLIsKnown(t *testing.T) {
	t.Parallel()
	rig := newRig(t)
	n := openNode(t, "redis://"+rig.Addr()).(*node)
	ask := func(r protocol.Request) { submit(t, n, r).next(t) }
	r := acquire("k", "v")
	r.TTL = 20 * time.Second
	ask(r)
	r.Op = protocol.OpInspect
	r.TTL = time.Hour
	ask(r)
	assert.Equal(t, 20*time.Second, time.Duration(n.longest.Load()))
	of := record.New("run", 3)
	of.Born = time.Hour
	of.Steps = []record.Step{{TTL: time.Minute}}
	require.NoError(t, rig.Set(record.Key, of.String()))
	ask(protocol.Request{Op: protocol.OpAdmit, Key: record.Key, Admit: &protocol.Admission{}})
	assert.Equal(t, time.Minute, time.Duration(n.longest.Load()))
}
