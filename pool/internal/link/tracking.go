package link

import (
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool/internal/wire"
)

// A tracking makes a server track the keys that the requests of a connection watch: see hints. It
// tracks with NOLOOP, so the connection's own changes send no hints. These changes still consume
// the tracking of the key, so the script of an extension ends with another read of the key. (Redis
// 6.0 reports a script's own changes in spite of NOLOOP, which costs one look per renewal.)
type tracking struct {
	hints    *hints
	merger   *wire.Merger
	runID    string // run_id of the server
	listener int64  // client last named to the server; zero: none; used by the writer
	granted  bool   // whether the server accepted the listener; used by the reader
}

// wanted returns the client that should receive hints.
func (t *tracking) wanted() int64 {
	if r := t.hints.redirect.Load(); r.runID == t.runID {
		return r.client
	}
	return 0
}

// insert adds to a batch the commands that make its watches send hints.
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
		cache := wire.Command(cacheNext, t.cached) // applies to one command
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

// track returns the command that turns tracking on, or off if there is no listener.
func (t *tracking) track(listener int64) wire.Call {
	if listener == 0 {
		return wire.Command(trackOff, func(any, redis.Error) { t.granted = false })
	}
	on := wire.Begin(7, "CLIENT", "TRACKING", "ON", "REDIRECT").Number(listener).Text("OPTIN").Text("NOLOOP")
	return wire.Command(on, t.tracked)
}

// tracked handles the reply to CLIENT TRACKING ON. The server does not track the keys of earlier
// requests, so every watcher gets a hint.
func (t *tracking) tracked(_ any, failure redis.Error) {
	t.granted = failure == ""
	switch {
	case failure == "":
		t.hints.give("")
	case strings.Contains(string(failure), "does not exist"):
		// The listener has just ended, and the next one will be named.
	default:
		t.hints.refuse()
	}
}

// cached handles the reply to CLIENT CACHING. It ignores errors while tracking is off, because the
// command then always fails.
func (t *tracking) cached(_ any, failure redis.Error) {
	if failure != "" && t.granted {
		t.hints.refuse()
	}
}

// readEach makes the server track the keys of merged extensions.
func (t *tracking) readEach(keys []string) wire.Call {
	return wire.Command(t.merger.ReadEach(keys), func(answer any, failure redis.Error) {
		if failure != "" { // not permitted: separate extensions track their own keys
			t.merger.Stop()
		}
		if answer != int64(len(keys)) { // a key vanished before the server tracked it, without a hint
			for _, key := range keys {
				t.hints.give(key)
			}
		}
	})
}
