package link

import (
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool/internal/wire"
)

// A tracking has a server remember what the requests of a connection watch: see hints. It tracks with
// NOLOOP, so the connection's own changes give no hints. They use up what the server remembered all the
// same, so the script of an extension ends with another look at the key. (Redis 6.0 does tell what a
// script changes. That costs each renewal a look.)
type tracking struct {
	hints    *hints
	merger   *wire.Merger
	run      string // the server's run_id
	listener int64  // the client that was named to the server last; zero: none; the writer's
	granted  bool   // the server's answer to that; the reader's
}

// wanted returns the client that hints should go to.
func (t *tracking) wanted() int64 {
	if r := t.hints.redirect.Load(); r.run == t.run {
		return r.client
	}
	return 0
}

// insert inserts the commands by which the watches of a batch give hints.
func (t *tracking) insert(batch []wire.Call) []wire.Call {
	listener := t.wanted()
	changed := listener != t.listener
	if !changed && (listener == 0 || !slices.ContainsFunc(batch, func(k wire.Call) bool { return k.Watches() })) {
		return batch
	}
	with := make([]wire.Call, 0, 2*len(batch)+1)
	if changed {
		t.listener = listener
		with = append(with, t.track(listener))
	}
	for _, k := range batch {
		if listener == 0 || !k.Watches() {
			with = append(with, k)
			continue
		}
		cache := wire.Command(cacheNext, t.cached) // holds for one command
		if keys := k.MergedExtensions(); keys != nil {
			with = append(with, k, cache, t.readEach(keys))
		} else {
			with = append(with, cache, k)
		}
	}
	return with
}

var (
	trackOff  = wire.Begin(3, "CLIENT", "TRACKING", "OFF")
	cacheNext = wire.Begin(3, "CLIENT", "CACHING", "YES")
)

// track makes the command that turns tracking on, or off if there is no listener.
func (t *tracking) track(listener int64) wire.Call {
	if listener == 0 {
		return wire.Command(trackOff, func(any, redis.Error) { t.granted = false })
	}
	on := wire.Begin(7, "CLIENT", "TRACKING", "ON", "REDIRECT").Number(listener).Text("OPTIN").Text("NOLOOP")
	return wire.Command(on, t.tracked)
}

// tracked takes the answer to CLIENT TRACKING ON. The server does not remember what was asked
// before it, so all who watch are given a hint.
func (t *tracking) tracked(_ any, failure redis.Error) {
	t.granted = failure == ""
	switch {
	case failure == "":
		t.hints.give("")
	case strings.Contains(string(failure), "does not exist"):
		// The listener has just ended, and its successor will be named.
	default:
		t.hints.refuse()
	}
}

// cached takes the answer to CLIENT CACHING. Without tracking the command fails, and means nothing.
func (t *tracking) cached(_ any, failure redis.Error) {
	if failure != "" && t.granted {
		t.hints.refuse()
	}
}

// readEach has the server remember the keys of merged extensions.
func (t *tracking) readEach(keys []string) wire.Call {
	return wire.Command(t.merger.ReadEach(keys), func(answer any, failure redis.Error) {
		if failure != "" { // not permitted: each extension has its key remembered by itself
			t.merger.Stop()
		}
		if answer != int64(len(keys)) { // a key went before it was remembered: the server does not tell
			for _, key := range keys {
				t.hints.give(key)
			}
		}
	})
}
