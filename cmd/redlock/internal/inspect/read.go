// Package inspect reads what servers hold for locks, outside of any lock: for "redlock status", "redlock
// release", "redlock reset" and the page of "redlock serve". docs/KEYS.md has the keys.
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
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A Question says what is read of a set of servers.
type Question struct {
	Names   []string // none: all that a server finds by SCAN
	Limit   int      // of the names that are looked for
	Permits int      // of each name, free ones, too
	Members int      // of the readers of each lock, and of those who wait
	Beside  bool     // tokens and waiters, too, which are in other keys
}

// Holdings are what the servers of a set have at one moment.
type Holdings struct {
	Servers []Server
	Locks   []Lock // by name and permit
	CutOff  bool   // there may be more names
}

// A Server is how one server has answered.
type Server struct {
	Name string
	Err  error
}

// A Lock is what the servers have for a lock, or for one permit of it.
type Lock struct {
	Name    string
	Permit  int
	Several bool       // the name has several permits
	On      []Contents // each server
}

// Contents are what one server has of a Lock.
type Contents struct {
	Value            string
	TTL              time.Duration
	Err              error // why it is not known
	Fence            int64 // the highest token that it has accepted
	Readers, Waiters Members
}

// Members are the readers of a lock, or those who wait for it.
type Members struct {
	Count int
	First []Member // of them
	Err   error
}

// A Member is one of them, by its value or ticket.
type Member struct {
	ID           string
	Left, Waited time.Duration
}

// Limits of what there is to read.
const (
	MostPermits = 1000 // of a name
	MostReaders = 1000 // of a lock, that a server is worth asking for: those that stay the longest
	LongestName = 1024 // bytes of a lock's key
)

const (
	// scanCount is how many keys a server looks at in one go. It serves no other client meanwhile, for
	// some 0.1 ms.
	scanCount = 500
	// scanSteps bounds the search among many other keys to some seconds.
	scanSteps = 20_000
	// atOneGo is how many locks a server is asked for in one packet, which take it a millisecond.
	atOneGo = 100
)

// Read reads what the servers have. What is wrong with a server is told there; the error is that ctx has
// ended.
func (r *Reader) Read(ctx context.Context, q Question) (*Holdings, error) {
	h := &Holdings{Servers: make([]Server, len(r.Servers))}
	names := make([]map[string]int, len(r.Servers)) // with the permits of each
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
		if conns[i] != nil { // also of a server that refuses to SCAN
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

// arrange makes room for what will be read of the names that the servers found.
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

// Within asks a server, and closes the connection if the answer takes longer than it may.
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

// Connect connects to a server, unless that has no vote: what it holds is another's, or a part. One that
// does not permit the questions is believed, as it is by the locks.
func (r *Reader) Connect(ctx context.Context, server int) (redis.Conn, error) {
	dialing, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	c, err := r.Servers[server].Dial(dialing)
	if err != nil {
		return nil, err
	}
	err = r.Within(ctx, c, func() error {
		role, _ := redis.Values(c.Do("ROLE"))
		if len(role) > 0 {
			switch word, _ := redis.String(role[0], nil); word {
			case "slave":
				return pool.ErrReplica
			case "sentinel":
				return pool.ErrSentinel
			}
		}
		info, err := redis.String(c.Do("CLUSTER", "INFO")) // which a server that is in no cluster refuses
		if why := keys.Missing(info); why != "" {
			return fmt.Errorf("%w (%s)", pool.ErrCluster, why)
		}
		if c.Err() != nil {
			return err
		}
		return nil
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// count returns how many permits each name has at least: one more than the highest that the server
// holds. It asks for the TTL of all that there can be, which every client may ask for, and takes the
// server a millisecond.
func (r *Reader) count(ctx context.Context, c redis.Conn, names []string) (map[string]int, error) {
	found := map[string]int{}
	for _, name := range names {
		var all batch
		for slot := 1; slot < MostPermits; slot++ {
			all.add("PTTL", keys.Slot(r.Prefix+name, slot))
		}
		if err := r.Within(ctx, c, func() error { return all.send(c) }); err != nil {
			return found, err
		}
		for slot := 1; slot < MostPermits; slot++ {
			if left, err := redis.Int64(all.next(), nil); err == nil && left != -2 { // there is such a key
				found[name] = slot + 1
			}
		}
	}
	return found, nil
}

// scan looks for the names of locks, and how many permits each has at least. A server's keys come in no
// order, some of them several times.
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
			// The pattern matches more, and the server may understand it otherwise.
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

// contents asks a server for all Holdings. If it fails on the way, what it has said is returned, too.
func (r *Reader) contents(ctx context.Context, c redis.Conn, q Question, locks []Lock) (all []Contents, err error) {
	for some := range slices.Chunk(locks, atOneGo) {
		var told []Contents
		if err := r.Within(ctx, c, func() (err error) { told, err = ask(c, r.Prefix, q, some); return err }); err != nil {
			return all, err
		}
		all = append(all, told...)
	}
	return all, nil
}

// ask asks for some Holdings: first for their keys, then for those that the keys tell of.
func ask(c redis.Conn, prefix string, q Question, locks []Lock) ([]Contents, error) {
	var first, second batch
	first.add("TIME")
	for _, l := range locks {
		key := keys.Slot(prefix+l.Name, l.Permit)
		first.add("GET", key)
		first.add("PTTL", key)
		if q.Beside {
			first.add("ZSCORE", keys.Counter.Of(key), "highest")
		}
		if q.Beside && l.Permit == 0 {
			first.add("ZRANGE", keys.Queue.Of(key), 0, q.Members-1, "WITHSCORES")
			first.add("ZCARD", keys.Queue.Of(key))
		}
	}
	if err := first.send(c); err != nil {
		return nil, err
	}
	now := first.time()
	all := make([]Contents, len(locks))
	for i, l := range locks {
		one, key := &all[i], prefix+l.Name
		one.Value, one.TTL, one.Err = first.key()
		if q.Beside {
			one.Fence = int64(first.number())
		}
		if q.Beside && l.Permit == 0 {
			one.Waiters = first.members(func(m *Member, arrival float64) { m.Waited = milliseconds(now - arrival) })
		}
		for _, m := range one.Waiters.First {
			second.add("HGET", keys.Seen(keys.Queue.Of(key)), m.ID)
		}
		if one.Value == protocol.ReadersValue { // what is left of readers elsewhere is void
			second.add("ZRANGE", keys.Readers.Of(key), -q.Members, -1, "WITHSCORES")
			second.add("ZCARD", keys.Readers.Of(key))
		}
	}
	if err := second.send(c); err != nil {
		return nil, err
	}
	for i := range all {
		one := &all[i]
		for j := range one.Waiters.First {
			one.Waiters.First[j].Left = milliseconds(second.number() - now)
		}
		if one.Value == protocol.ReadersValue {
			one.Readers = second.members(func(m *Member, end float64) { m.Left = milliseconds(end - now) })
		}
		one.Waiters.drop()
		one.Readers.drop()
	}
	return all, nil
}

func milliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// drop drops members that do not count any more: those whose life is over.
func (m *Members) drop() {
	named := len(m.First)
	m.First = slices.DeleteFunc(m.First, func(one Member) bool { return one.Left <= 0 })
	m.Count -= named - len(m.First)
}

// A batch is commands that are sent in one packet. Its answers are taken in their order; a number that a
// server refuses to tell is zero.
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
	answer, left := b.next(), b.next()
	if refused, ok := answer.(redis.Error); ok {
		if strings.HasPrefix(string(refused), "WRONGTYPE") {
			return "", 0, protocol.ErrWrongType
		}
		return "", 0, refused
	}
	value, _ = redis.String(answer, nil)
	switch left, _ := redis.Int64(left, nil); {
	case answer == nil || left == -2:
		return "", 0, nil
	case left < 0:
		return value, protocol.NoTTL, nil
	default:
		return value, max(time.Duration(left)*time.Millisecond, time.Microsecond), nil
	}
}

// number takes an answer that is a number, or a text of one.
func (b *batch) number() float64 {
	switch answer := b.next().(type) {
	case int64:
		return float64(answer)
	case []byte:
		n, _ := strconv.ParseFloat(string(answer), 64)
		return n
	}
	return 0
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
func (b *batch) members(score func(*Member, float64)) (all Members) {
	list, err := redis.Strings(b.next(), nil)
	all.Err = err
	for pair := range slices.Chunk(list, 2) {
		m := Member{ID: pair[0]}
		at, _ := strconv.ParseFloat(pair[len(pair)-1], 64)
		score(&m, at)
		all.First = append(all.First, m)
	}
	all.Count = max(int(b.number()), len(all.First))
	return all
}
