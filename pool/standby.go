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
	"github.com/redquorum/redquorum/pool/internal/link"
)

const primaryKey = record.PrimaryKey

// maxApart is the greatest difference between the clocks of a replica and its primary. The fencing
// tokens that a replica accepted as an earlier primary were near its own clock. To a primary whose
// clock is far ahead, the steps in its record would seem to have faded.
const maxApart = time.Second

var (
	// errNoVote means that no server of a node with standbys has the node's vote.
	errNoVote = errors.New("the node has no server that may vote")
	// errPrimary is the error for a server that should be a replica.
	errPrimary = errors.New("is no replica")
)

// A node can be several servers with one primary at a time: the server of its URL and its standbys,
// which are its members. Redis Sentinel, or any other program that promotes and demotes them, is
// not asked, because it may have promoted one server while another still grants. Both would then
// vote for the node.
//
// Therefore a primary has the vote only after all others have been seen as replicas since its
// promotion. A client that has seen this confirms it: it writes the identity of the primary under
// primaryKey, on the primary. Later clients trust that key as long as it names the present process
// and data set, which change with each promotion. internal/record/standby_test.go explores the
// possible events.
//
// The keys of a promoted primary may lack the last locks, like the keys of a restarted server. The
// epoch record then belongs to another server, which the memory guard notices.
type members []member

// A member is one server of a node. Each Dial is called by one goroutine.
type member struct {
	name string
	dial link.Dial
	hint link.Dial // dial for the second connection
}

// reach connects to the member that has the node's vote.
func (m members) reach(ctx context.Context) link.Greeting {
	greetings := m.greet(ctx, link.Handshake)
	found, err := m.elect(ctx, greetings)
	return closeOthers(greetings, found, err)
}

// elect returns the member that is confirmed or can be, or the reason there is no such member.
func (m members) elect(ctx context.Context, greetings []link.Greeting) (found int, err error) {
	found, primaries := primaryOf(greetings)
	switch alone := len(m) == 1; {
	case found < 0 && alone:
		return 0, greetings[0].Err
	case found < 0:
		return 0, m.explain(greetings)
	case greetings[found].Server.IsConfirmed(), alone && greetings[found].Server.Primary == "":
		return found, nil
	case alone:
		return 0, fmt.Errorf("belongs to a node with standbys, and must not vote alone: "+
			"use the same URL in all clients, or delete the key %s if it has no standbys now", primaryKey)
	case greetings[found].Server.IsAnonymous():
		return 0, fmt.Errorf("%w: %s hides its identity: permit INFO and ROLE, which a node with standbys needs",
			errNoVote, m[found].name)
	case isOneServer(greetings):
		return 0, fmt.Errorf("%w: two of their addresses lead to one server", errNoVote)
	case primaries > 1:
		return 0, fmt.Errorf("%w: %d of them are primaries: make all others replicas of one", errNoVote, primaries)
	}
	return found, m.confirm(ctx, found, greetings)
}

// greet greets all members at once, and identifies the server at the other end with handshake. It
// does not wait for the others when one is confirmed.
func (m members) greet(ctx context.Context, handshake func(context.Context, redis.Conn) (link.Server, []string, error)) []link.Greeting {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	greetings := make([]link.Greeting, len(m))
	var wg sync.WaitGroup
	for i := range m {
		wg.Go(func() {
			g := &greetings[i]
			g.Hint = m[i].hint
			if g.Conn, g.Err = m[i].dial(ctx); g.Err != nil {
				return
			}
			if g.Server, g.Doubts, g.Err = handshake(ctx, g.Conn); g.Err != nil {
				g.Conn.Close()
			} else if g.Server.IsConfirmed() {
				cancel()
			}
		})
	}
	wg.Wait()
	return greetings
}

// closeOthers returns one of the greetings, or the error, and closes the connections of the others.
func closeOthers(greetings []link.Greeting, kept int, err error) link.Greeting {
	for i, g := range greetings {
		if g.Err == nil && (err != nil || i != kept) {
			g.Conn.Close()
		}
	}
	if err != nil {
		return link.Greeting{Err: err}
	}
	return greetings[kept]
}

// primaryOf returns the confirmed primary, or otherwise one of the primaries, and the number of
// primaries. It returns -1 without a primary.
func primaryOf(greetings []link.Greeting) (found, primaries int) {
	found = -1
	for i, g := range greetings {
		if g.Err != nil {
			continue
		}
		primaries++
		if found < 0 || g.Server.IsConfirmed() {
			found = i
		}
	}
	return found, primaries
}

// isOneServer reports whether two greetings are from the same process.
func isOneServer(greetings []link.Greeting) bool {
	seen := map[string]bool{}
	for _, g := range greetings {
		if id := g.Server.RunID; id != "" && seen[id] {
			return true
		}
		seen[g.Server.RunID] = true
	}
	return false
}

// explain returns the reason no member is a primary.
func (m members) explain(greetings []link.Greeting) error {
	var each []string
	for i, g := range greetings {
		each = append(each, m[i].name+": "+link.Explain(g.Err).Error())
	}
	return fmt.Errorf("%w: %s", errNoVote, strings.Join(each, "; "))
}

// dialPrimary connects to the member that votes, or that would vote if all others were its
// replicas. It changes nothing, and is for tools.
func (m members) dialPrimary(ctx context.Context) (redis.Conn, error) {
	greetings := m.greet(ctx, func(ctx context.Context, c redis.Conn) (s link.Server, _ []string, err error) {
		if err = link.Ask(ctx, c, append(s.AskWho(), s.AskRole())...); err != nil {
			return s, nil, err
		}
		if err := s.Unfit(); err != nil {
			return s, nil, err
		}
		return s, nil, s.AskScript(ctx, c)
	})
	found, _ := primaryOf(greetings)
	if found < 0 {
		return nil, m.explain(greetings)
	}
	return closeOthers(greetings, found, nil).Conn, nil
}

// confirm verifies that all members except the primary are replicas, and writes that to the
// primary. Each member is checked again, after the primary was greeted.
//
// No wait is necessary. A vote counts only if its server was still the same primary after the vote
// (link's confirmation). Each vote of another member that counts therefore ran before this check of
// that member, and its lock expires within a TTL after it: the quarantine of the primary begins
// later, with its record. If the primary was demoted since its greeting, SET is refused. If it was
// promoted again as well, the key names a past generation, which no client accepts as confirmed,
// and the first batch of this client ends its connection.
func (m members) confirm(ctx context.Context, at int, greetings []link.Greeting) error {
	primary := &greetings[at]
	for i, g := range greetings {
		if i == at {
			continue
		}
		err := cmp.Or(g.Err, errPrimary)
		if errors.Is(link.Explain(err), ErrReplica) {
			err = m[i].lookAt(ctx, primary.Conn)
		}
		if err != nil {
			return fmt.Errorf("%w: %s is a primary, and votes once all others have been seen as replicas; %s: %w",
				errNoVote, m[at].name, m[i].name, link.Explain(err))
		}
	}
	primary.Server.Primary = primary.Server.Generation()
	err := link.Ask(ctx, primary.Conn, link.Question{Name: "SET", Args: []any{primaryKey, primary.Server.Primary}, Required: true})
	if err != nil {
		return fmt.Errorf("%w: %s cannot be confirmed under the key %s: %w", errNoVote, m[at].name, primaryKey, link.Explain(err))
	}
	return nil
}

// lookAt returns an error if the member is not a replica, or if its clock differs from the
// primary's clock.
func (m *member) lookAt(ctx context.Context, primary redis.Conn) error {
	c, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var is link.Server
	var here, there time.Duration
	began := time.Now()
	if err := link.Ask(ctx, primary, askTime(&here)); err != nil {
		return fmt.Errorf("the clock of the primary: %w", link.Explain(err))
	}
	err = link.Ask(ctx, c, is.AskRole(), askTime(&there))
	ahead := there - here // upper bound of the lead; the lower bound also contains the time of the readings
	switch {
	case err != nil:
		return err
	case is.Role != "slave":
		return errPrimary
	case ahead > maxApart || time.Since(began)-ahead > maxApart:
		apart := max(ahead, time.Since(began)-ahead).Round(time.Millisecond)
		return fmt.Errorf("its clock and the clock of the primary may be %v apart, at most %v is allowed: set the clocks", apart, maxApart)
	}
	return nil
}

// askTime returns the question for the server's clock. The answer counts from 1970.
func askTime(clock *time.Duration) link.Question {
	return link.Question{Name: "TIME", Required: true, Answered: func(v any) {
		if parts, err := redis.Int64s(v, nil); err == nil && len(parts) == 2 {
			*clock = time.Duration(parts[0])*time.Second + time.Duration(parts[1])*time.Microsecond
		}
	}}
}
