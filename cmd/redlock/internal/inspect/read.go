// Package inspect asks servers about themselves and about locks, outside of any lock: for "redlock status",
// "redlock release", "redlock reset", "redlock doctor" and the page of "redlock serve". An Interview asks one
// server about itself, and a Reader asks several for their Holdings. docs/KEYS.md has the keys.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// A Question selects the locks to read from a set of servers.
type Question struct {
	Names   []string // none: all locks that a server finds by SCAN
	Limit   int      // limit of names found by SCAN
	Permits int      // permits to read of each name, also free ones
	Members int      // readers and waiters to read of each lock
	Beside  bool     // also read tokens and waiters, which are in other keys
}

// Holdings are the locks on the servers of a set at one moment.
type Holdings struct {
	Servers []Server
	Locks   []Lock // by name and permit
	CutOff  bool   // there may be more names
}

// A Server has the result of asking one server.
type Server struct {
	Name string
	Err  error
}

// A Lock is a lock, or one permit of it, on all servers.
type Lock struct {
	Name    string
	Permit  int
	Several bool       // the name has several permits
	On      []Contents // each server
}

// Contents are the data of a Lock on one server.
type Contents struct {
	Value            string
	TTL              time.Duration
	Err              error // reason the contents are unknown
	Fence            int64 // the highest token that it has accepted
	Readers, Waiters Members
}

// Members are the readers of a lock, or its waiters.
type Members struct {
	Count int
	First []Member // of them
	Err   error
}

// A Member is a reader or a waiter, identified by its value or ticket.
type Member struct {
	ID           string
	Left, Waited time.Duration
}

// Limits of a Question.
const (
	MostPermits = 1000 // of a name
	MostReaders = 1000 // of a lock on one server; the server returns the readers that stay longest
	LongestName = 1024 // bytes of a lock's key
)

const (
	// scanCount is the number of keys that a server scans in one step. A step takes about 0.1 ms, in which the
	// server serves no other client.
	scanCount = 500
	// scanSteps bounds a search among many other keys to a few seconds.
	scanSteps = 20_000
	// atOneGo is the number of locks in one packet, which take a server a millisecond.
	atOneGo = 100
)

// Read reads the locks on the servers. The fault of a server is in its Server.Err; Read returns an error only if
// ctx has ended.
func (r *Reader) Read(ctx context.Context, q Question) (*Holdings, error) {
	h := &Holdings{Servers: make([]Server, len(r.Servers))}
	names := make([]map[string]int, len(r.Servers)) // names that each server found, with the number of permits
	conns := make([]redis.Conn, len(r.Servers))
	cuts := make([]bool, len(r.Servers))
	atOnce(len(r.Servers), func(i int) {
		s := &h.Servers[i]
		s.Name = r.Servers[i].Name
		switch conns[i], s.Err = r.Connect(ctx, i); {
		case s.Err != nil:
		case len(q.Names) > 0:
			names[i], s.Err = r.count(ctx, conns[i], q.Names)
		default:
			names[i], cuts[i], s.Err = r.scan(ctx, i, conns[i], q.Limit)
		}
	})
	h.CutOff = slices.Contains(cuts, true)
	h.arrange(q, names)
	atOnce(len(r.Servers), func(i int) {
		var told []Contents
		s := &h.Servers[i]
		if conns[i] != nil { // even if the server refuses SCAN
			var err error
			told, err = r.contents(ctx, conns[i], q, h.Locks)
			conns[i].Close()
			s.Err = cmp.Or(s.Err, err)
		}
		for n := range h.Locks {
			if n < len(told) {
				h.Locks[n].On[i] = told[n]
			} else {
				h.Locks[n].On[i].Err = s.Err
			}
		}
	})
	return h, ctx.Err()
}

// atOnce calls f for 0 to n-1, each in a goroutine of its own.
func atOnce(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// arrange makes a Lock for each permit of the names that the servers found.
func (h *Holdings) arrange(q Question, found []map[string]int) {
	permits := map[string]int{}
	for _, name := range q.Names {
		permits[name] = max(1, q.Permits)
	}
	for _, names := range found {
		for name, n := range names {
			permits[name] = max(permits[name], n)
		}
	}
	names := q.Names
	if len(names) == 0 {
		for name := range permits {
			names = append(names, name)
		}
		if slices.Sort(names); len(names) > q.Limit {
			names, h.CutOff = names[:q.Limit], true
		}
	}
	for _, name := range names {
		for permit := range permits[name] {
			h.Locks = append(h.Locks, Lock{Name: name, Permit: permit, Several: permits[name] > 1, On: make([]Contents, len(found))})
		}
	}
}

// A Reader asks the servers of one set.
type Reader struct {
	Servers []Dialer
	Prefix  string        // of the keys of locks
	Timeout time.Duration // of one answer
}

// A Dialer connects to one server.
type Dialer struct {
	Name string
	Dial func(context.Context) (redis.Conn, error)
}

// Within asks a server, and closes the connection if the answer takes longer than the limit.
func (r *Reader) Within(ctx context.Context, c redis.Conn, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	err := ask()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", r.Timeout)
	}
	return err
}

// Connect connects to a server that has a vote. The keys of a server without a vote belong to another
// server, or are incomplete. Like package pool, Connect trusts a server that does not permit the
// questions.
func (r *Reader) Connect(ctx context.Context, server int) (redis.Conn, error) {
	dialing, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	c, err := r.Servers[server].Dial(dialing)
	if err != nil {
		return nil, err
	}
	err = r.Within(ctx, c, func() error {
		is := Interview{Conn: c}
		if err := is.Identify(); err != nil {
			return err
		}
		return is.Who.Unfit()
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// count returns the minimum number of permits of each name: one more than the highest permit that
// the server holds. It asks for the TTLs of all possible permits. Every client has the right to do
// that, and it takes the server a millisecond.
func (r *Reader) count(ctx context.Context, c redis.Conn, names []string) (map[string]int, error) {
	found := map[string]int{}
	for _, name := range names {
		var all []*Command
		for slot := 1; slot < MostPermits; slot++ {
			all = append(all, NewCommand("PTTL", keys.Slot(r.Prefix+name, slot)))
		}
		if err := r.Within(ctx, c, func() error { return Send(c, all...) }); err != nil {
			return found, err
		}
		for i, q := range all {
			if left, err := redis.Int64(q.Answer()); err == nil && left != -2 { // the key exists
				found[name] = i + 2
			}
		}
	}
	return found, nil
}

// scan looks for the names of locks, and the minimum number of permits of each. A server returns
// its keys in no order, and some of them several times.
func (r *Reader) scan(ctx context.Context, server int, c redis.Conn, limit int) (found map[string]int, cut bool, err error) {
	found = map[string]int{}
	cursor, pattern := "0", "*"+escapeGlob(r.Prefix)+"*" // the keys of permits have the prefix inside
	for range scanSteps {
		var some []string
		err := r.Within(ctx, c, func() error {
			list, err := redis.Values(c.Do("SCAN", cursor, "MATCH", pattern, "COUNT", scanCount, "TYPE", "string"))
			if err == nil {
				_, err = redis.Scan(list, &cursor, &some)
			}
			return err
		})
		var refused redis.Error
		switch {
		case errors.As(err, &refused):
			return found, false, fmt.Errorf("SCAN: %w; permit +scan to list locks, or pass their names", refused)
		case err != nil:
			return found, false, err
		}
		for _, key := range some {
			// The pattern matches more names, and the server may read it in another way.
			key, permit := keys.OfSlot(key)
			name, ok := strings.CutPrefix(key, r.Prefix)
			if ok && name != "" && len(key) <= LongestName && permit < MostPermits && !redlock.Reserved(key) {
				found[name] = max(found[name], permit+1)
			}
		}
		if cursor == "0" || len(found) > limit {
			return found, cursor != "0", nil
		}
	}
	return found, true, nil
}

// escapeGlob returns a pattern for SCAN that matches the text and nothing else.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// contents asks a server for all Holdings. If the server fails, contents also returns the answers
// up to that point.
func (r *Reader) contents(ctx context.Context, c redis.Conn, q Question, locks []Lock) (all []Contents, err error) {
	for some := range slices.Chunk(locks, atOneGo) {
		var on []Contents
		if err := r.Within(ctx, c, func() (err error) { on, err = r.ask(c, q, some); return err }); err != nil {
			return all, err
		}
		all = append(all, on...)
	}
	return all, nil
}

// ask asks for some locks: first for their keys, then for the members that the first answers name.
func (r *Reader) ask(c redis.Conn, q Question, locks []Lock) ([]Contents, error) {
	clock := NewCommand("TIME")
	first, second := []*Command{clock}, []*Command(nil)
	add := func(to *[]*Command, words ...any) *Command {
		command := NewCommand(words...)
		*to = append(*to, command)
		return command
	}
	all := make([]inquiry, len(locks))
	for i, l := range locks {
		one, key := &all[i], keys.Slot(r.Prefix+l.Name, l.Permit)
		one.key = key
		one.value, one.ttl = add(&first, "GET", key), add(&first, "PTTL", key)
		if q.Beside {
			one.fence = add(&first, "ZSCORE", keys.Counter.Of(key), "highest")
		}
		if q.Beside && l.Permit == 0 {
			one.waiters = add(&first, "ZRANGE", keys.Queue.Of(key), 0, q.Members-1, "WITHSCORES")
			one.waiting = add(&first, "ZCARD", keys.Queue.Of(key))
		}
	}
	if err := Send(c, first...); err != nil {
		return nil, err
	}
	now := float64(time.Now().UnixMilli())
	if at, ok := clock.Time(); ok {
		now = float64(at.UnixMicro()) / 1000
	}
	on := make([]Contents, len(locks))
	for i := range all {
		one, has := &all[i], &on[i]
		has.Value, has.TTL, has.Err = one.held()
		has.Fence = int64(number(one.fence))
		has.Waiters = members(one.waiters, one.waiting, func(m *Member, arrival float64) { m.Waited = milliseconds(now - arrival) })
		for _, m := range has.Waiters.First {
			one.seen = append(one.seen, add(&second, "HGET", keys.Seen(keys.Queue.Of(one.key)), m.ID))
		}
		if has.Value == protocol.ReadersValue { // leftovers of readers without this key are void
			one.readers = add(&second, "ZRANGE", keys.Readers.Of(one.key), -q.Members, -1, "WITHSCORES")
			one.reading = add(&second, "ZCARD", keys.Readers.Of(one.key))
		}
	}
	if err := Send(c, second...); err != nil {
		return nil, err
	}
	for i := range all {
		one, has := &all[i], &on[i]
		for j, seen := range one.seen {
			has.Waiters.First[j].Left = milliseconds(number(seen) - now)
		}
		has.Readers = members(one.readers, one.reading, func(m *Member, end float64) { m.Left = milliseconds(end - now) })
		has.Waiters.drop()
		has.Readers.drop()
	}
	return on, nil
}

// An inquiry holds the commands that ask one server about one lock. A nil command is not sent.
type inquiry struct {
	key              string
	value, ttl       *Command
	fence            *Command
	waiters, waiting *Command
	seen             []*Command // of each waiter
	readers, reading *Command
}

func milliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// drop drops expired members.
func (m *Members) drop() {
	named := len(m.First)
	m.First = slices.DeleteFunc(m.First, func(one Member) bool { return one.Left <= 0 })
	m.Count -= named - len(m.First)
}

// held returns the value of the key, and its TTL.
func (q *inquiry) held() (value string, ttl time.Duration, err error) {
	switch left, _ := redis.Int64(q.ttl.Answer()); {
	case strings.HasPrefix(string(q.value.Err), "WRONGTYPE"):
		return "", 0, protocol.ErrWrongType
	case q.value.Err != "":
		return "", 0, q.value.Err
	case q.value.Value == nil || left == -2:
		return "", 0, nil
	case left < 0:
		return q.value.Text(), protocol.NoTTL, nil
	default:
		return q.value.Text(), max(time.Duration(left)*time.Millisecond, time.Microsecond), nil
	}
}

// number returns an answer that is a number, or zero if the server refuses to report it.
func number(q *Command) (n float64) {
	if q != nil {
		n, _ = strconv.ParseFloat(q.Text(), 64)
	}
	return n
}

// members returns the answers to ZRANGE WITHSCORES and ZCARD.
func members(list, count *Command, score func(*Member, float64)) (all Members) {
	if list == nil {
		return all
	}
	pairs, err := redis.Strings(list.Answer())
	all.Err = err
	for pair := range slices.Chunk(pairs, 2) {
		m := Member{ID: pair[0]}
		at, _ := strconv.ParseFloat(pair[len(pair)-1], 64)
		score(&m, at)
		all.First = append(all.First, m)
	}
	n, _ := redis.Int(count.Answer())
	all.Count = max(n, len(all.First))
	return all
}
