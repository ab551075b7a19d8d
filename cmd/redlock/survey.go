package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gomodule/redigo/redis"
	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/doctor"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/serve"
	"github.com/redquorum/redquorum/redlock"
)

// A surveyor looks at the servers for the page of "redlock serve", by what "redlock status" and "redlock
// doctor" see, and by the companions of the locks (docs/KEYS.md). Its look is not called twice at a time.
type surveyor struct {
	servers *servers
	sets    []serverSet
	finders []*finder // of the sets

	examined *examination // nil: not yet
	nextExam time.Time
}

const (
	surveyedLocks = 10_000           // of one set
	examinedEvery = 10 * time.Second // a visit of the doctor is some fifty commands
	namedMembers  = 20               // readers, and those who wait, of one lock
)

func newSurveyor(s *servers, sets []serverSet) (*surveyor, error) {
	y := &surveyor{servers: s, sets: sets}
	for _, set := range sets {
		f, err := s.newFinder(set, surveyedLocks)
		if err != nil {
			return nil, set.blame(err)
		}
		y.finders = append(y.finders, f)
	}
	return y, nil
}

// look makes a survey. What is wrong with servers is in it.
func (y *surveyor) look(ctx context.Context) (*serve.Survey, error) {
	parts := make([]*serve.Survey, len(y.sets))
	var exam sync.WaitGroup
	if now := time.Now(); now.After(y.nextExam) {
		exam.Go(func() {
			if found, err := y.servers.examine(ctx); err == nil { // or a group has no quorum
				y.examined = found
			}
			y.nextExam = time.Now().Add(examinedEvery)
		})
	}
	atOnce(len(y.sets), func(i int) error {
		parts[i] = y.finders[i].survey(ctx, y.sets[i].group)
		return nil
	})
	exam.Wait()
	found := &serve.Survey{Locks: []serve.LockState{}}
	for _, part := range parts {
		found.Locks, found.Servers = append(found.Locks, part.Locks...), append(found.Servers, part.Servers...)
		found.CutOff = found.CutOff || part.CutOff
	}
	if y.examined != nil {
		y.examined.addTo(found.Servers)
	}
	return found, ctx.Err()
}

// survey looks at one set of servers.
func (f *finder) survey(ctx context.Context, group string) *serve.Survey {
	names, permits, nodes, cut := f.find(ctx)
	var slots []slot
	for _, name := range names {
		for i := range permits[name] {
			slots = append(slots, slot{f.prefix + name, i})
		}
	}
	told := make([][]contents, len(nodes))
	atOnce(len(nodes), func(i int) (err error) {
		if nodes[i].Error == "" {
			if told[i], err = f.contents(ctx, f.servers[i], slots); err != nil {
				nodes[i].Error = nodeError(err)
			}
		}
		return nil
	})
	found := &serve.Survey{CutOff: cut}
	for i, at := range slots {
		in := &redlock.Inspection{Name: strings.TrimPrefix(at.key, f.prefix)}
		var fence int64
		var readers, waiters []tally
		for j, n := range nodes {
			state := redlock.NodeState{Node: n.Node, Err: errNoAnswer}
			if n.Error != "" {
				state.Err = errors.New(n.Error)
			}
			if i < len(told[j]) {
				c := &told[j][i]
				state.Value, state.TTL, state.Stuck, state.Err = c.value, c.ttl, c.ttl == protocol.NoTTL, c.err
				fence, readers, waiters = max(fence, c.fence), append(readers, c.readers), append(waiters, c.waiters)
			}
			in.Nodes = append(in.Nodes, state)
		}
		l := judge(in)
		if l.State == stateFree {
			continue
		}
		l.Group = group
		if permits[in.Name] > 1 {
			l.Permit = &at.number
		}
		a := lockState(&l)
		a.Fence, a.Readers, a.Waiters = fence, merge(readers), merge(waiters)
		found.Locks = append(found.Locks, a)
	}
	for _, n := range nodes {
		found.Servers = append(found.Servers, serve.ServerState{Server: n.Node, Group: group, Error: n.Error, Findings: []serve.Finding{}})
	}
	return found
}

// lockState returns what the page shows of a lock.
func lockState(l *lockStatus) serve.LockState {
	a := serve.LockState{
		Name: textOf(l.Name), Group: l.Group, Permit: l.Permit, State: l.State, Kind: "exclusive",
		Votes: l.Votes, Servers: len(l.Nodes), Owner: l.Owner, Left: l.TTL,
	}
	if l.Votes > 0 {
		a.Holder = l.shown()
	}
	if l.Since != nil {
		a.Since = l.Since.Format(time.RFC3339)
	}
	switch {
	case l.Readers:
		a.Kind = "shared"
	case l.Permit != nil:
		a.Kind = "permits"
	}
	for _, n := range l.Nodes {
		k := serve.HeldKey{Server: n.Node, State: n.state(), Left: n.TTL, Error: n.Error}
		if n.Held {
			k.Holder = n.shown()
		}
		a.Keys = append(a.Keys, k)
	}
	return a
}

// textOf returns a name as JSON can hold it.
func textOf(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// addTo adds what was found of the servers.
func (e *examination) addTo(servers []serve.ServerState) {
	for i := range servers {
		s := &servers[i]
		for _, g := range e.Groups {
			at := slices.IndexFunc(g.Nodes, func(n doctor.NodeReport) bool { return n.Node == s.Server })
			if g.Group != s.Group || at < 0 {
				continue
			}
			if t := g.Nodes[at].Timing; t != nil {
				s.Timing = &serve.Timing{
					Trip: t.Trip.Microseconds(), Longest: t.Longest.Microseconds(),
					Ahead: t.Offset.Microseconds(), Within: t.Uncertainty.Microseconds(),
				}
			}
			for _, f := range g.Nodes[at].Findings {
				s.Findings = append(s.Findings, serve.Finding{Severity: f.Severity.String(), Check: f.Check, Found: f.Found, Means: f.Means, Do: f.Do})
			}
		}
	}
}

// A slot is a lock's key, and which of its permits.
type slot struct {
	key    string
	number int
}

// Contents are what one server has for one slot: in its key, and beside it.
type contents struct {
	value            string
	ttl              time.Duration
	err              error
	fence            int64
	readers, waiters tally
}

// A tally is the members that one server has, in order.
type tally struct {
	count int
	first []serve.Member
}

// atOneGo is how many slots a server is asked for in one packet. It serves no other client meanwhile, for
// about a millisecond.
const atOneGo = 100

// contents asks one server. If it fails on the way, what it has said is returned, too.
func (f *finder) contents(ctx context.Context, s dialer, slots []slot) (all []contents, err error) {
	if len(slots) == 0 {
		return nil, nil
	}
	c, err := f.dial(ctx, s)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for some := range slices.Chunk(slots, atOneGo) {
		told, err := f.someContents(ctx, c, some)
		if err != nil {
			return all, err
		}
		all = append(all, told...)
	}
	return all, nil
}

func (f *finder) someContents(ctx context.Context, c redis.Conn, slots []slot) ([]contents, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var keysOf batch
	keysOf.add("TIME")
	for _, at := range slots {
		key, queue := keys.Slot(at.key, at.number), keys.Queue.Of(at.key)
		keysOf.add("GET", key)
		keysOf.add("PTTL", key)
		keysOf.add("ZSCORE", keys.Counter.Of(key), "highest")
		if at.number == 0 {
			keysOf.add("ZRANGE", queue, 0, namedMembers-1, "WITHSCORES")
			keysOf.add("ZCARD", queue)
		}
	}
	if err := keysOf.send(c); err != nil {
		return nil, f.late(ctx, err)
	}
	now := keysOf.time()
	all := make([]contents, len(slots))
	var members batch // of readers, and until when those who wait count
	for i, at := range slots {
		one := &all[i]
		one.value, one.ttl, one.err = keysOf.key()
		one.fence = int64(keysOf.number())
		if at.number == 0 {
			one.waiters = keysOf.members(func(m *serve.Member, arrival float64) { m.Waited = int64(now - arrival) })
		}
		for _, m := range one.waiters.first {
			members.add("HGET", keys.Seen(keys.Queue.Of(at.key)), m.ID)
		}
		if one.value == protocol.ReadersValue {
			members.add("ZRANGE", keys.Readers.Of(at.key), -namedMembers, -1, "WITHSCORES")
			members.add("ZCARD", keys.Readers.Of(at.key))
		}
	}
	if err := members.send(c); err != nil {
		return nil, f.late(ctx, err)
	}
	for i := range all {
		one := &all[i]
		for j := range one.waiters.first {
			m := &one.waiters.first[j]
			m.Left, m.ID = int64(members.number()-now), valueShown(m.ID)
		}
		one.waiters.drop()
		if one.value != protocol.ReadersValue {
			continue
		}
		one.readers = members.members(func(m *serve.Member, end float64) {
			m.Owner, m.ID, m.Left = redlock.HolderOf(m.ID).Owner, valueShown(m.ID), int64(end-now)
		})
		one.readers.drop()
	}
	return all, nil
}

// drop drops members that do not count any more: those whose life is over.
func (t *tally) drop() {
	named := len(t.first)
	t.first = slices.DeleteFunc(t.first, func(m serve.Member) bool { return m.Left <= 0 })
	t.count -= named - len(t.first)
}

// merge returns the members that the servers have, in the order of the server that knows the most. A queue
// is on one server as long as that answers.
func merge(of []tally) (m serve.Members) {
	slices.SortStableFunc(of, func(a, b tally) int { return cmp.Compare(len(b.first), len(a.first)) })
	at := map[string]int{}
	for _, t := range of {
		m.Count = max(m.Count, t.count)
		for _, one := range t.first {
			i, ok := at[one.ID]
			if !ok {
				i = len(m.First)
				at[one.ID] = i
				m.First = append(m.First, one)
			}
			known := &m.First[i]
			known.Votes++
			known.Waited, known.Left = max(known.Waited, one.Waited), max(known.Left, one.Left)
		}
	}
	m.First = m.First[:min(len(m.First), namedMembers)]
	m.Count = max(m.Count, len(m.First))
	return m
}

// A batch is commands that are sent in one packet. Its answers are taken in their order; numbers and
// members that a server refuses to tell are zero.
type batch struct {
	commands [][]any
	answers  []any
}

func (b *batch) add(words ...any) { b.commands = append(b.commands, words) }

func (b *batch) send(c redis.Conn) error {
	for _, words := range b.commands {
		if err := c.Send(words[0].(string), words[1:]...); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for range b.commands {
		answer, err := c.Receive()
		var refused redis.Error
		switch {
		case errors.As(err, &refused):
			answer = refused
		case err != nil:
			return err
		}
		b.answers = append(b.answers, answer)
	}
	return nil
}

func (b *batch) next() any {
	answer := b.answers[0]
	b.answers = b.answers[1:]
	return answer
}

// key takes the answers to GET and PTTL.
func (b *batch) key() (value string, ttl time.Duration, err error) {
	answer, ms := b.next(), b.next()
	if refused, ok := answer.(redis.Error); ok {
		if strings.HasPrefix(string(refused), "WRONGTYPE") {
			return "", 0, protocol.ErrWrongType
		}
		return "", 0, refused
	}
	value, _ = redis.String(answer, nil)
	left, _ := redis.Int64(ms, nil)
	switch {
	case answer == nil || left == -2:
		return "", 0, nil
	case left < 0:
		return value, protocol.NoTTL, nil
	}
	return value, max(time.Duration(left)*time.Millisecond, time.Microsecond), nil
}

// number takes an answer that is a number.
func (b *batch) number() float64 {
	n, _ := redis.Float64(b.next(), nil)
	return n
}

// time takes the answer to TIME, in milliseconds.
func (b *batch) time() float64 {
	list, _ := redis.Int64s(b.next(), nil)
	if len(list) != 2 {
		return float64(time.Now().UnixMilli())
	}
	return float64(list[0])*1000 + float64(list[1])/1000
}

// members takes the answers to ZRANGE WITHSCORES and ZCARD.
func (b *batch) members(score func(*serve.Member, float64)) (t tally) {
	list, _ := redis.Strings(b.next(), nil)
	for i := 0; i+1 < len(list); i += 2 {
		m := serve.Member{ID: list[i]}
		at, _ := strconv.ParseFloat(list[i+1], 64)
		score(&m, at)
		t.first = append(t.first, m)
	}
	t.count = max(int(b.number()), len(t.first))
	return t
}

// release deletes what the servers hold for a lock, as "redlock release --force" does, if it is what was
// shown to who asks.
func (y *surveyor) release(ctx context.Context, wanted serve.ForcedRelease) (done string, err error) {
	defer func() {
		what := done
		if err != nil {
			what = "not released: " + oneLine(err.Error())
		}
		fmt.Fprintf(y.servers.stderr, "redlock: release by force of %s, asked for by %s: %s\n", word(wanted.Name), word(wanted.By), what)
	}()
	if err := y.servers.checkName(wanted.Name); err != nil {
		return "", err
	}
	var out bytes.Buffer
	c := &cobra.Command{}
	c.SetContext(ctx)
	c.SetOut(&out)
	r := &releaseCommand{servers: y.servers, name: wanted.Name, force: true, yes: true}
	sets := y.servers.setsOf(y.sets, wanted.Name)
	nodes, err := y.servers.openSets(sets)
	if err != nil {
		return "", err
	}
	var errs []error
	for i, of := range sets {
		set, err := y.servers.nodeSet(of, nodes[i], r.name)
		defer set.close()
		if err == nil {
			err = r.releaseSeen(c, set, wanted.Seen)
		}
		errs = append(errs, of.blame(err))
	}
	if err := r.outcome(errs); err != nil {
		return "", err
	}
	return oneLine(out.String()), nil
}

// releaseSeen releases the lock on one set, unless others hold it than were seen.
func (r *releaseCommand) releaseSeen(c *cobra.Command, set *nodeSet, seen []string) error {
	shown := c.OutOrStdout()
	c.SetOut(&bytes.Buffer{}) // not what the servers hold
	found, err := r.look(c, set)
	c.SetOut(shown)
	if err != nil {
		return err
	}
	isOther := func(p part) bool {
		return slices.ContainsFunc(p.found, func(reply protocol.Reply) bool {
			isRest := p.reader && reply.Value == "" // of readers that have gone
			return r.means(reply) && !isRest && !slices.Contains(seen, valueShown(reply.Value))
		})
	}
	if len(seen) > 0 && slices.ContainsFunc(found, isOther) {
		return errors.New("another holds it by now than was shown: nothing was deleted; look again")
	}
	return r.deleteAll(c, set, found)
}
