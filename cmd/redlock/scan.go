package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A finder looks for the locks on all servers.
type finder struct {
	prefix  string
	limit   int           // of names
	timeout time.Duration // of one command
	servers []dialer
}

// A dialer connects to one server.
type dialer struct {
	name    string
	dial    func(context.Context) (redis.Conn, error)
	foreign []string // prefixes of keys that are another group's
}

// isForeign reports whether the key is one of another group.
func (s dialer) isForeign(key string) bool {
	return slices.ContainsFunc(s.foreign, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

func (s *servers) newFinder(set serverSet, limit int) (*finder, error) {
	opts, err := s.poolOptions()
	if err != nil {
		return nil, err
	}
	f := &finder{prefix: s.prefixOf(set), limit: limit, timeout: s.answerTimeout()}
	for _, u := range set.urls {
		name, dial, err := pool.Dialer(u, opts...)
		if err != nil {
			return nil, err
		}
		f.servers = append(f.servers, dialer{name, dial, s.foreign(set, name)})
	}
	return f, nil
}

// find returns the names that any server has, in order, how many permits each has at least, and how
// each server answered; cut says that there may be more names.
func (f *finder) find(ctx context.Context) (names []string, permits map[string]int, nodes []nodeStatus, cut bool) {
	nodes = make([]nodeStatus, len(f.servers))
	found := make([]map[string]int, len(f.servers))
	cuts := make([]bool, len(f.servers))
	atOnce(len(f.servers), func(i int) (err error) {
		nodes[i].Node = f.servers[i].name
		if found[i], cuts[i], err = f.scan(ctx, f.servers[i]); err != nil {
			nodes[i].Error = nodeError(err)
		}
		return nil
	})
	permits = map[string]int{}
	for i := range found {
		cut = cut || cuts[i]
		for name, n := range found[i] {
			permits[name] = max(permits[name], n)
		}
	}
	for name := range permits {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) > f.limit {
		names, cut = names[:f.limit], true
	}
	return names, permits, nodes, cut
}

// visit connects to each server, and has ask ask it. A server that does not answer in time is left
// alone, and its part of what is found is missing.
func (f *finder) visit(ctx context.Context, ask func(server int, c redis.Conn) error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	atOnce(len(f.servers), func(i int) error {
		c, err := f.servers[i].dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		return ask(i, c)
	})
}

// count returns how many permits each of the names has at least: one more than the highest that a
// server holds, and at least one. It asks for the TTL of all that there can be, which every client may
// ask for, and takes a server a millisecond.
func (f *finder) count(ctx context.Context, names []string) map[string]int {
	counts := make([]map[string]int, len(f.servers))
	f.visit(ctx, func(server int, c redis.Conn) error {
		for _, name := range names {
			for slot := 1; slot < mostPermits; slot++ {
				c.Send("PTTL", keys.Slot(f.prefix+name, slot))
			}
		}
		if err := c.Flush(); err != nil {
			return err
		}
		found := map[string]int{}
		for _, name := range names {
			for slot := 1; slot < mostPermits; slot++ {
				left, err := redis.Int64(c.Receive())
				if err != nil {
					return err
				}
				if left != -2 { // there is such a key
					found[name] = slot + 1
				}
			}
		}
		counts[server] = found
		return nil
	})
	most := map[string]int{}
	for _, name := range names {
		most[name] = 1
		for _, found := range counts {
			most[name] = max(most[name], found[name])
		}
	}
	return most
}

// mostReaders is how many readers of a lock a server is asked for: those that stay the longest.
const mostReaders = 1000

// readers returns who reads each of the names on each server: their values, and what each has left.
func (f *finder) readers(ctx context.Context, names []string) map[string][]map[string]time.Duration {
	all := map[string][]map[string]time.Duration{}
	for _, name := range names {
		all[name] = make([]map[string]time.Duration, len(f.servers))
	}
	f.visit(ctx, func(server int, c redis.Conn) error {
		clock, err := redis.Int64s(c.Do("TIME"))
		if err != nil || len(clock) != 2 {
			return err
		}
		for _, name := range names {
			until, err := redis.Int64Map(c.Do("ZRANGE", keys.Readers.Of(f.prefix+name), -mostReaders, -1, "WITHSCORES"))
			if err != nil {
				return err
			}
			found := map[string]time.Duration{}
			for value, end := range until {
				if left := time.Duration(end-clock[0]*1000-clock[1]/1000) * time.Millisecond; left > 0 {
					found[value] = left
				}
			}
			all[name][server] = found
		}
		return nil
	})
	return all
}

// valuesOf returns the values of readers, in order.
func valuesOf(readers []map[string]time.Duration) []string {
	all := map[string]bool{}
	for _, of := range readers {
		for value := range of {
			all[value] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

const (
	// scanCount is how many keys a server looks at in one go. It serves no other client
	// meanwhile, for some 0.1 ms.
	scanCount = 500
	// scanSteps bounds the search among many other keys to some seconds.
	scanSteps = 20_000
)

// scan asks one server. Its keys come in no order, some of them several times.
func (f *finder) scan(ctx context.Context, s dialer) (found map[string]int, cut bool, err error) {
	c, err := f.dial(ctx, s)
	if err != nil {
		return nil, false, err
	}
	defer c.Close()
	if err := f.votes(ctx, c); err != nil {
		return nil, false, err
	}
	found = map[string]int{}
	cursor := "0"
	for range scanSteps {
		list, err := f.step(ctx, c, cursor)
		if err != nil {
			return found, false, err
		}
		var some []string
		if _, err := redis.Scan(list, &cursor, &some); err != nil {
			return found, false, errors.New("its answer to SCAN makes no sense")
		}
		for _, key := range some {
			// The pattern matches more, and the server may understand it otherwise.
			key, permit := keys.OfSlot(key)
			name, ok := strings.CutPrefix(key, f.prefix)
			if ok && permit < mostPermits && !redlock.Reserved(key) && !s.isForeign(key) {
				found[name] = max(found[name], permit+1)
			}
		}
		switch {
		case cursor == "0":
			return found, false, nil
		case len(found) > f.limit:
			return found, true, nil
		}
	}
	return found, true, nil
}

// dial connects to one server.
func (f *finder) dial(ctx context.Context, s dialer) (redis.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return s.dial(ctx)
}

// late returns the error of a connection, which may be that the answer took too long.
func (f *finder) late(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", f.timeout)
	}
	return err
}

// votes returns an error if the server is one that has no vote: what it holds is another's, or a
// part. A server that does not permit the questions is believed, as it is by the locks.
func (f *finder) votes(ctx context.Context, c redis.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	role, err := redis.Values(c.Do("ROLE"))
	if err == nil && len(role) > 0 {
		switch word, _ := redis.String(role[0], nil); word {
		case "slave":
			return pool.ErrReplica
		case "sentinel":
			return pool.ErrSentinel
		}
	}
	info, err := redis.String(c.Do("CLUSTER", "INFO")) // which a server that is in no cluster refuses
	if err != nil && ctx.Err() != nil {
		return f.late(ctx, err)
	}
	if why := keys.Missing(info); why != "" {
		return fmt.Errorf("%w (%s)", pool.ErrCluster, why)
	}
	return nil
}

// mostPermits is how many a name can have.
const mostPermits = 1000

// step is one SCAN, for keys that begin with the prefix, and those of slots, which have it inside. The
// connection is closed if the answer takes too long.
func (f *finder) step(ctx context.Context, c redis.Conn, cursor string) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	list, err := redis.Values(c.Do("SCAN", cursor, "MATCH", "*"+escapeGlob(f.prefix)+"*", "COUNT", scanCount, "TYPE", "string"))
	var reply redis.Error
	switch {
	case errors.As(err, &reply):
		return nil, fmt.Errorf("SCAN: %w; where it cannot be had, give the names of the locks", reply)
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("no answer to SCAN within %v", f.timeout)
	}
	return list, err
}

// escapeGlob returns a pattern for SCAN that matches the text and nothing else.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
