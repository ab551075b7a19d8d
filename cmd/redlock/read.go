package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A question says what is read of a set of servers.
type question struct {
	names   []string // none: all that a server finds by SCAN
	limit   int      // of the names that are looked for
	permits int      // of each name, free ones, too
	members int      // of the readers of each lock
	beside  bool     // tokens and waiters, too, which are in other keys
}

// Holdings are what the servers of a set have at one moment.
type holdings struct {
	servers []nodeStatus
	locks   []holding // by name and permit
	cutOff  bool      // there may be more names
}

// A holding is what the servers have for one lock, or for one permit of it.
type holding struct {
	name    string
	permit  int
	several bool       // the name has several permits
	on      []contents // each server
}

// Contents are what one server has for one holding.
type contents struct {
	value            string
	ttl              time.Duration
	err              error // why it is not known
	fence            int64
	readers, waiters members
}

// Members are the readers of a lock, or those who wait for it.
type members struct {
	count int
	first []member
	err   error
}

// A member is one of them, by its value or ticket.
type member struct {
	id           string
	left, waited time.Duration
}

const (
	mostPermits = 1000 // of a name
	mostReaders = 1000 // of a lock, that a server is asked for: those that stay the longest
	longestName = 1024 // bytes of a lock's key

	// scanCount is how many keys a server looks at in one go. It serves no other client meanwhile, for
	// some 0.1 ms.
	scanCount = 500
	// scanSteps bounds the search among many other keys to some seconds.
	scanSteps = 20_000
	// atOneGo is how many holdings a server is asked for in one packet, which take it a millisecond.
	atOneGo = 100
)

// read reads what a set of servers has. What is wrong with servers is told there; the error is about
// settings, or that ctx has ended.
func (s *servers) read(ctx context.Context, set serverSet, q question) (*holdings, error) {
	r, err := s.newReader(set, q)
	if err != nil {
		return nil, err
	}
	names := make([]map[string]int, len(r.servers)) // with the permits of each
	conns := make([]redis.Conn, len(r.servers))
	cuts := make([]bool, len(r.servers))
	h := &holdings{servers: make([]nodeStatus, len(r.servers))}
	failed := func(i int, err error) {
		if err != nil && h.servers[i].Error == "" {
			h.servers[i].Error = harmless(err.Error())
		}
	}
	atOnce(len(r.servers), func(i int) (err error) {
		h.servers[i].Node = r.servers[i].name
		if conns[i], err = r.connect(ctx, i); err == nil && len(q.names) > 0 {
			names[i], err = r.count(ctx, conns[i])
		} else if err == nil {
			names[i], cuts[i], err = r.scan(ctx, i, conns[i])
		}
		failed(i, err)
		return nil
	})
	h.cutOff = slices.Contains(cuts, true)
	h.arrange(q, names)
	atOnce(len(r.servers), func(i int) (err error) {
		var told []contents
		if conns[i] != nil { // also of a server that refuses to SCAN
			told, err = r.contents(ctx, conns[i], h.locks)
			conns[i].Close()
			failed(i, err)
		}
		for n := range h.locks {
			if n < len(told) {
				h.locks[n].on[i] = told[n]
			} else {
				h.locks[n].on[i].err = errors.New(h.servers[i].Error)
			}
		}
		return nil
	})
	return h, ctx.Err()
}

// arrange makes room for what will be read of the names that the servers found.
func (h *holdings) arrange(q question, found []map[string]int) {
	permits := map[string]int{}
	for _, name := range q.names {
		permits[name] = max(1, q.permits)
	}
	for _, names := range found {
		for name, n := range names {
			permits[name] = max(permits[name], n)
		}
	}
	names := q.names
	if len(names) == 0 {
		for name := range permits {
			names = append(names, name)
		}
		if slices.Sort(names); len(names) > q.limit {
			names, h.cutOff = names[:q.limit], true
		}
	}
	for _, name := range names {
		for permit := range permits[name] {
			h.locks = append(h.locks, holding{name: name, permit: permit, several: permits[name] > 1, on: make([]contents, len(found))})
		}
	}
}

// A reader asks the servers of one set.
type reader struct {
	question
	prefix  string
	timeout time.Duration // of one answer
	servers []dialer
}

// A dialer connects to one server.
type dialer struct {
	name    string
	dial    func(context.Context) (redis.Conn, error)
	foreign []string // prefixes of keys that are another group's
}

func (s *servers) newReader(set serverSet, q question) (*reader, error) {
	opts, err := s.poolOptions()
	if err != nil {
		return nil, err
	}
	r := &reader{question: q, prefix: s.prefixOf(set), timeout: s.answerTimeout()}
	for _, u := range set.urls {
		name, dial, err := pool.Dialer(u, opts...)
		if err != nil {
			return nil, err
		}
		r.servers = append(r.servers, dialer{name, dial, s.foreign(set, name)})
	}
	return r, nil
}

// within asks a server, and closes the connection if the answer takes longer than it may.
func (r *reader) within(ctx context.Context, c redis.Conn, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	err := ask()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", r.timeout)
	}
	return err
}

// connect connects to a server, unless that has no vote: what it holds is another's, or a part. One that
// does not permit the questions is believed, as it is by the locks.
func (r *reader) connect(ctx context.Context, server int) (redis.Conn, error) {
	dialing, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	c, err := r.servers[server].dial(dialing)
	if err != nil {
		return nil, err
	}
	err = r.within(ctx, c, func() error {
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
func (r *reader) count(ctx context.Context, c redis.Conn) (map[string]int, error) {
	found := map[string]int{}
	for _, name := range r.names {
		var all batch
		for slot := 1; slot < mostPermits; slot++ {
			all.add("PTTL", keys.Slot(r.prefix+name, slot))
		}
		if err := r.within(ctx, c, func() error { return all.send(c) }); err != nil {
			return found, err
		}
		for slot := 1; slot < mostPermits; slot++ {
			if left, err := redis.Int64(all.next(), nil); err == nil && left != -2 { // there is such a key
				found[name] = slot + 1
			}
		}
	}
	return found, nil
}

// scan looks for the names of locks, and how many permits each has at least. A server's keys come in no
// order, some of them several times.
func (r *reader) scan(ctx context.Context, server int, c redis.Conn) (found map[string]int, cut bool, err error) {
	found = map[string]int{}
	cursor, pattern := "0", "*"+escapeGlob(r.prefix)+"*" // the keys of permits have the prefix inside
	for range scanSteps {
		var some []string
		err := r.within(ctx, c, func() error {
			list, err := redis.Values(c.Do("SCAN", cursor, "MATCH", pattern, "COUNT", scanCount, "TYPE", "string"))
			if err == nil {
				_, err = redis.Scan(list, &cursor, &some)
			}
			return err
		})
		var refused redis.Error
		switch {
		case errors.As(err, &refused):
			return found, false, fmt.Errorf("SCAN: %w; where it cannot be had, give the names of the locks", refused)
		case err != nil:
			return found, false, err
		}
		for _, key := range some {
			// The pattern matches more, and the server may understand it otherwise.
			key, permit := keys.OfSlot(key)
			name, ok := strings.CutPrefix(key, r.prefix)
			isForeign := slices.ContainsFunc(r.servers[server].foreign, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
			if ok && name != "" && len(key) <= longestName && permit < mostPermits && !redlock.Reserved(key) && !isForeign {
				found[name] = max(found[name], permit+1)
			}
		}
		if cursor == "0" || len(found) > r.limit {
			return found, cursor != "0", nil
		}
	}
	return found, true, nil
}

// escapeGlob returns a pattern for SCAN that matches the text and nothing else.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// contents asks a server for all holdings. If it fails on the way, what it has said is returned, too.
func (r *reader) contents(ctx context.Context, c redis.Conn, locks []holding) (all []contents, err error) {
	for some := range slices.Chunk(locks, atOneGo) {
		var told []contents
		if err := r.within(ctx, c, func() (err error) { told, err = r.ask(c, some); return err }); err != nil {
			return all, err
		}
		all = append(all, told...)
	}
	return all, nil
}

// ask asks for some holdings: first for their keys, then for those that the keys tell of.
func (r *reader) ask(c redis.Conn, locks []holding) ([]contents, error) {
	var first, second batch
	first.add("TIME")
	for _, l := range locks {
		key := keys.Slot(r.prefix+l.name, l.permit)
		first.add("GET", key)
		first.add("PTTL", key)
		if r.beside {
			first.add("ZSCORE", keys.Counter.Of(key), "highest")
		}
		if r.beside && l.permit == 0 {
			first.add("ZRANGE", keys.Queue.Of(key), 0, r.members-1, "WITHSCORES")
			first.add("ZCARD", keys.Queue.Of(key))
		}
	}
	if err := first.send(c); err != nil {
		return nil, err
	}
	now := first.time()
	all := make([]contents, len(locks))
	for i, l := range locks {
		one, key := &all[i], r.prefix+l.name
		one.value, one.ttl, one.err = first.key()
		if r.beside {
			one.fence = int64(first.number())
		}
		if r.beside && l.permit == 0 {
			one.waiters = first.members(func(m *member, arrival float64) { m.waited = milliseconds(now - arrival) })
		}
		for _, m := range one.waiters.first {
			second.add("HGET", keys.Seen(keys.Queue.Of(key)), m.id)
		}
		if one.value == protocol.ReadersValue { // what is left of readers elsewhere is void
			second.add("ZRANGE", keys.Readers.Of(key), -r.members, -1, "WITHSCORES")
			second.add("ZCARD", keys.Readers.Of(key))
		}
	}
	if err := second.send(c); err != nil {
		return nil, err
	}
	for i := range all {
		one := &all[i]
		for j := range one.waiters.first {
			one.waiters.first[j].left = milliseconds(second.number() - now)
		}
		if one.value == protocol.ReadersValue {
			one.readers = second.members(func(m *member, end float64) { m.left = milliseconds(end - now) })
		}
		one.waiters.drop()
		one.readers.drop()
	}
	return all, nil
}

func milliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// drop drops members that do not count any more: those whose life is over.
func (m *members) drop() {
	named := len(m.first)
	m.first = slices.DeleteFunc(m.first, func(one member) bool { return one.left <= 0 })
	m.count -= named - len(m.first)
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
func (b *batch) members(score func(*member, float64)) (all members) {
	list, err := redis.Strings(b.next(), nil)
	all.err = err
	for pair := range slices.Chunk(list, 2) {
		m := member{id: pair[0]}
		at, _ := strconv.ParseFloat(pair[len(pair)-1], 64)
		score(&m, at)
		all.first = append(all.first, m)
	}
	all.count = max(int(b.number()), len(all.first))
	return all
}
