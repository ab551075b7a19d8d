package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/record"
)

// A node can be several servers, of which one at a time is the primary: the one of its URL and its
// standbys. Redis Sentinel, or whatever promotes and demotes them, is not asked, because it may have
// promoted one while another still grants. Both would have the node's one vote.
//
// So a primary has it only when all others have been seen as replicas since its promotion. A client
// that has seen this confirms it: it writes to the primary who that is, under primaryKey. Whoever
// comes later believes what stands there, as long as it names the present process and data set,
// which change with each promotion. internal/record/standby_test.go tries what can happen.
//
// The keys of a primary that was promoted may lack the last locks, as those of a server that was
// restarted, and the record of its memory is another server's: see package redlock, guard.go.

const primaryKey = record.PrimaryKey

// confirmAge is how long the others have been replicas when a primary is confirmed. Until then votes
// of theirs may rest on an older look at their identity (identityAge).
const confirmAge = 2 * identityAge

// maxApart is how far the clocks of a replica and its primary may be apart. What a replica has accepted
// of fencing tokens, if it was the primary before, was near to its own clock (package redlock,
// fence.go). And what it has entered into its record seems to have faded to a primary that is far
// ahead.
const maxApart = time.Second

// A member is one server of a node. Each dialer is called by one goroutine.
type member struct {
	name string
	dial dialer
	hint dialer // as dial, for the second connection
}

// errSucceeded is for a connection whose server is another than at the handshake: it has to be greeted
// again, because it may not be confirmed any more.
var errSucceeded = errors.New("has another data set than before: it was promoted again; or its first replica or a backup was attached, or the last replica is gone, which it cannot tell from that")

// errNoVote is why a node of several servers has none.
var errNoVote = errors.New("none of the node's servers has its vote")

// askPrimary, askProcess and askDataSet ask for what isConfirmed looks at, and askTaken for what
// identity needs besides. What stands under primaryKey is asked for first, so that it was there when
// the server was who it then is.

func askPrimary(s *server) question {
	return question{name: "GET", args: []any{primaryKey}, answered: func(v any) { s.primary = short(v) }}
}

func askProcess(s *server) question {
	return question{name: "INFO", args: []any{"server"}, answered: func(v any) { s.runID = infoField(v, "run_id") }}
}

func askDataSet(s *server) question {
	return question{name: "INFO", args: []any{"replication"}, answered: s.readReplication}
}

func askTaken(s *server) question {
	return question{name: "INFO", args: []any{"stats"}, answered: s.readStats}
}

// readReplication takes the answer to INFO replication.
func (s *server) readReplication(info any) {
	s.dataSet, s.second = infoField(info, "master_replid"), infoField(info, "second_repl_offset")
	s.demoted = strings.HasPrefix(infoField(info, "role"), "slave")
}

// readStats takes the answer to INFO stats.
func (s *server) readStats(info any) { s.taken = infoField(info, "total_net_repl_input_bytes") }

// identity names the server's process and data set, as recordScript does. It is empty if the process
// is not known.
func (s server) identity() string {
	if s.runID == "" {
		return ""
	}
	return s.runID + "/" + record.DataSet(s.dataSet, s.second, s.taken, s.primary)
}

// process names the server's process: where it has no run_id, by its data set. It is empty if neither is
// known.
func (s server) process() string { return cmp.Or(s.runID, s.dataSet) }

// askScript completes what INFO tells of a server that has no run_id. In scripts it may have one (an INFO
// that a proxy has rewritten), and the record is written by a script, which must name the server alike.
// Else its master_replid stands in: a process draws one when it begins. It changes with the first
// replica and with a promotion as well, which then cost a quarantine.
func (s *server) askScript(ctx context.Context, c redis.Conn) error {
	if s.runID != "" || s.dataSet == "" {
		return nil
	}
	return ask(ctx, c, []question{{name: "EVAL", args: []any{processScript, 0}, answered: func(v any) { s.runID = short(v) }}})
}

var processScript = luaSource("process")

// standsIn reports whether the data set stands in for the run_id that the server does not tell.
func (s server) standsIn() bool { return s.runID != "" && s.runID == s.dataSet }

// generation names the server as the primary that it has been since its last promotion. It may change
// without one.
func (s server) generation() string { return s.runID + "/" + s.dataSet }

// isConfirmed reports whether the server has been seen to be the only primary of its node.
func (s server) isConfirmed() bool {
	return s.runID != "" && s.dataSet != "" && s.primary == s.generation()
}

// isAnonymous reports whether the server does not tell all that is asked of a primary.
func (s server) isAnonymous() bool { return s.role == "" || s.runID == "" || s.dataSet == "" }

// reach connects to the server that has the node's vote.
func (n *node) reach(ctx context.Context) (c redis.Conn, s server, doubts []string, err error) {
	if len(n.members) > 1 {
		return n.reachPrimary(ctx)
	}
	g := n.members[0].greet(ctx, handshake)
	if g.err == nil && g.server.primary != "" && !g.server.isConfirmed() {
		g.conn.Close()
		g.err = fmt.Errorf("is one of the servers of a node with standbys, and not known to be the one with the vote; "+
			"give all clients the same URL, or delete the key %s if it stands alone now", primaryKey)
	}
	return g.conn, g.server, g.doubts, g.err
}

// reachPrimary connects to all servers of the node, and keeps the one that has been confirmed, or
// can be.
func (n *node) reachPrimary(ctx context.Context) (redis.Conn, server, []string, error) {
	greetings := greetAll(ctx, n.members, handshake)
	found, primaries := primaryOf(greetings)
	var err error
	switch {
	case found < 0:
		err = explainAll(n.members, greetings)
	case greetings[found].server.isConfirmed():
	case greetings[found].server.isAnonymous():
		err = fmt.Errorf("%w: %s does not tell who it is; permit INFO and ROLE, which a node with standbys needs",
			errNoVote, n.members[found].name)
	case isOneServer(greetings):
		err = fmt.Errorf("%w: two of their addresses lead to one server", errNoVote)
	case primaries > 1:
		err = fmt.Errorf("%w: %d of them are primaries; it has one when the others are its replicas", errNoVote, primaries)
	default:
		if err = n.awaits(found, greetings); err == nil {
			err = n.confirm(ctx, found, &greetings[found])
		}
	}
	if err != nil {
		keepOne(greetings, -1)
		return nil, server{}, nil, err
	}
	keepOne(greetings, found)
	n.at.Store(int32(found))
	g := greetings[found]
	return g.conn, g.server, g.doubts, nil
}

// A greeting is a new connection to a member, or why there is none.
type greeting struct {
	conn   redis.Conn
	server server
	doubts []string
	err    error
}

// A meeting asks a new connection which server is at the other end. It refuses a replica.
type meeting func(context.Context, redis.Conn) (server, []string, error)

func (m *member) greet(ctx context.Context, meet meeting) (g greeting) {
	if g.conn, g.err = m.dial(ctx); g.err != nil {
		return g
	}
	if g.server, g.doubts, g.err = meet(ctx, g.conn); g.err != nil {
		g.conn.Close()
	}
	return g
}

// greetAll greets all members at once. It does not wait for the others when one is confirmed.
func greetAll(ctx context.Context, members []member, meet meeting) []greeting {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	greetings := make([]greeting, len(members))
	var wg sync.WaitGroup
	for i := range members {
		wg.Go(func() {
			greetings[i] = members[i].greet(ctx, meet)
			if g := &greetings[i]; g.err == nil && g.server.isConfirmed() {
				cancel()
			}
		})
	}
	wg.Wait()
	return greetings
}

// primaryOf returns the primary that is confirmed, or else one of the primaries, and how many there
// are; -1 if there is none.
func primaryOf(greetings []greeting) (found, primaries int) {
	found = -1
	for i, g := range greetings {
		if g.err != nil {
			continue
		}
		primaries++
		if found < 0 || g.server.isConfirmed() {
			found = i
		}
	}
	return found, primaries
}

// isOneServer reports whether two greetings are of the same process.
func isOneServer(greetings []greeting) bool {
	seen := map[string]bool{}
	for _, g := range greetings {
		if id := g.server.runID; id != "" && seen[id] {
			return true
		}
		seen[g.server.runID] = true
	}
	return false
}

// keepOne closes all connections but one.
func keepOne(greetings []greeting, kept int) {
	for i, g := range greetings {
		if g.err == nil && i != kept {
			g.conn.Close()
		}
	}
}

// explainAll says why none of the members is a primary.
func explainAll(members []member, greetings []greeting) error {
	each := make([]string, len(greetings))
	for i, g := range greetings {
		each[i] = members[i].name + ": " + explainDial(g.err).Error()
	}
	return fmt.Errorf("%w: %s", errNoVote, strings.Join(each, "; "))
}

// dialPrimary connects to the server of the node that votes, or would if all others were its
// replicas. It changes nothing, for tools.
func dialPrimary(ctx context.Context, members []member) (redis.Conn, error) {
	greetings := greetAll(ctx, members, func(ctx context.Context, c redis.Conn) (s server, _ []string, err error) {
		err = ask(ctx, c, []question{
			askPrimary(&s), askProcess(&s), askDataSet(&s),
			{name: "ROLE", answered: func(v any) { s.role, _ = parseRole(v) }},
		})
		if err == nil && s.role == "slave" {
			err = ErrReplica
		}
		if err == nil {
			err = s.askScript(ctx, c)
		}
		return s, nil, err
	})
	found, _ := primaryOf(greetings)
	keepOne(greetings, found)
	if found < 0 {
		return nil, explainAll(members, greetings)
	}
	return greetings[found].conn, nil
}

// awaits says which of the others is no replica of the primary at, or nil.
func (n *node) awaits(at int, greetings []greeting) error {
	for i, g := range greetings {
		if i != at && !errors.Is(explainDial(g.err), ErrReplica) {
			return n.notConfirmed(at, i, g.err)
		}
	}
	return nil
}

// notConfirmed says that the primary at cannot be confirmed because of another server.
func (n *node) notConfirmed(at, other int, err error) error {
	return fmt.Errorf("%w: %s is a primary, and votes once all others have been seen as replicas; %s: %w",
		errNoVote, n.members[at].name, n.members[other].name, explainDial(err))
}

// confirm makes sure that all other servers are replicas, and tells the primary so.
func (n *node) confirm(ctx context.Context, at int, g *greeting) error {
	for i := range n.members {
		if i == at {
			continue
		}
		if err := n.members[i].lookAt(ctx, g.conn); err != nil {
			return n.notConfirmed(at, i, err)
		}
	}
	select {
	case <-time.After(confirmAge):
	case <-ctx.Done():
		return ctx.Err()
	}
	g.server.primary = g.server.generation()
	err := ask(ctx, g.conn, []question{
		{name: "SET", args: []any{primaryKey, g.server.primary}, required: true},
	})
	if err != nil {
		return fmt.Errorf("%w: %s cannot be confirmed under the key %s: %w", errNoVote, n.members[at].name, primaryKey, explainDial(err))
	}
	return nil
}

// errPrimary is for a server that should be a replica.
var errPrimary = errors.New("is no replica")

// lookAt returns an error if the member is no replica, or its clock is not the primary's.
func (m *member) lookAt(ctx context.Context, primary redis.Conn) error {
	c, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var role string
	var here, there time.Duration
	began := time.Now()
	if err := ask(ctx, primary, []question{askTime(&here)}); err != nil {
		return fmt.Errorf("while the primary was asked for its clock: %w", explainDial(err))
	}
	err = ask(ctx, c, []question{
		{name: "ROLE", answered: func(v any) { role, _ = parseRole(v) }},
		askTime(&there),
	})
	ahead := there - here // and behind by less than -ahead and the time that the readings took
	switch {
	case err != nil:
		return err
	case role != "slave":
		return errPrimary
	case ahead > maxApart || time.Since(began)-ahead > maxApart:
		apart := max(ahead, time.Since(began)-ahead).Round(time.Millisecond)
		return fmt.Errorf("its clock and the primary's may be %v apart, of %v; set the clocks", apart, maxApart)
	}
	return nil
}

// askTime asks for the server's clock, since 1970.
func askTime(clock *time.Duration) question {
	return question{name: "TIME", required: true, answered: func(v any) {
		if parts, err := redis.Int64s(v, nil); err == nil && len(parts) == 2 {
			*clock = time.Duration(parts[0])*time.Second + time.Duration(parts[1])*time.Microsecond
		}
	}}
}
