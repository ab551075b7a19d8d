package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

// A store has a server's keys, scripts and clock, without a network, goroutines or its own time: it
// runs a request at the last time that it was given. It is part of a Server and of a Store.
type store struct {
	index int
	name  string
	epoch time.Duration // time zero, since 1970
	keys  map[string]entry

	moment time.Duration // true time
	wall   wall

	run   int // counts the processes; a crash ends one
	named struct {
		run  int
		text string // identity of the process
	}

	tracked []tracking
	hints   []StoreHint // to be sent
	client  int         // client of the running request, which gets no hint of its own change; -1: no client
}

// A tracking makes the server send a client a hint of the next change of a key.
type tracking struct {
	key     string
	client  int
	expires time.Duration // expiry of the key; any other change ends the tracking
}

// A StoreHint is a hint from a server to a client.
type StoreHint struct {
	Client int
	Key    string // empty: all keys
}

// An entry is a key's value, with its time of expiry by the server's clock.
type entry struct {
	value   string
	wrong   bool                     // not a string: string commands fail
	tickets []ticket                 // tickets of a queue, in order; not modified in place
	score   *float64                 // score of a counter of tokens
	readers map[string]time.Duration // expiry of each reader, since 1970; not modified in place
	expires time.Duration
}

// text returns the value of a string, or the number of a counter.
func (e entry) text() string {
	if e.score != nil {
		return strconv.FormatFloat(*e.score, 'f', -1, 64)
	}
	return e.value
}

const never time.Duration = 1<<63 - 1

// A wall is a server's clock: its reading at a moment, and its rate since then.
type wall struct {
	reading, since time.Duration
	rate           float64
}

func newStore(index int, name string, epoch time.Duration) store {
	return store{index: index, name: name, epoch: epoch, keys: map[string]entry{}, wall: wall{rate: 1}, client: -1}
}

// now returns the reading of the server's clock.
func (s *store) now() time.Duration {
	return s.wall.reading + time.Duration(float64(s.moment-s.wall.since)*s.wall.rate)
}

// unix returns the time since 1970 by the server's clock.
func (s *store) unix() time.Duration { return s.epoch + s.now() }

// SetRate makes the clock advance by rate seconds per second from now on.
func (s *store) SetRate(rate float64) { s.wall = wall{s.now(), s.moment, rate} }

// Step sets the clock ahead by d, or back if d is below zero.
func (s *store) Step(d time.Duration) { s.wall.reading += d }

// left returns a key's remaining TTL in whole milliseconds, as PTTL does, but at least one while
// the key lives.
func (s *store) left(e entry) time.Duration {
	switch e.expires {
	case 0:
		return 0
	case never:
		return protocol.NoTTL
	}
	return max(time.Millisecond, (e.expires - s.now()).Truncate(time.Millisecond))
}

func (s *store) expired(e entry) bool { return s.now() >= e.expires }

func (s *store) lookup(key string) (entry, bool) {
	e, ok := s.keys[key]
	if ok && s.expired(e) {
		s.remove(key)
		return entry{}, false
	}
	return e, ok
}

// living calls f for each key that has not expired. Unlike lookup, it sends no hints of expired
// keys.
func (s *store) living(f func(key string, e entry)) {
	for key, e := range s.keys {
		if !s.expired(e) {
			f(key, e)
		}
	}
}

func (s *store) write(key string, e entry) {
	s.keys[key] = e
	s.changed(key)
}

// Set sets a key without a client's request, for ttl, or without expiry if ttl is protocol.NoTTL.
func (s *store) Set(key, value string, ttl time.Duration) { s.put(key, entry{value: value}, ttl) }

// SetCounter makes key a counter of fencing tokens, without expiry.
func (s *store) SetCounter(key string, score float64) {
	s.put(key, entry{wrong: true, score: &score}, protocol.NoTTL)
}

func (s *store) put(key string, e entry, ttl time.Duration) {
	e.expires = never
	if ttl != protocol.NoTTL {
		e.expires = s.now() + ttl
	}
	s.write(key, e)
}

// prolong makes an existing key live for at least ttl from now on.
func (s *store) prolong(key string, ttl time.Duration) {
	e, until := s.keys[key], s.now()+ttl
	if e.expires == never || e.expires < until {
		e.expires = until
		s.write(key, e)
	}
}

func (s *store) remove(key string) {
	if _, ok := s.keys[key]; ok {
		delete(s.keys, key)
		s.changed(key)
	}
}

// Settle gives the server the epoch record of one that has long been in use, by clients with this
// number of nodes and this longest TTL. Without it, a new server is in quarantine at first.
func (s *store) Settle(nodes int, longest time.Duration) {
	const life = 1 << 42 * time.Millisecond
	now := s.unix()
	settled := record.Record{
		Run: s.identity(), Generation: "settled-" + s.name, Nodes: nodes, Born: now - 1000*time.Hour, Basis: record.Asked,
		Steps: []record.Step{{TTL: longest, Entered: now - 1000*time.Hour, Used: now}},
	}
	s.put(record.Key, entry{value: settled.String()}, life)
}

// identity names the process.
func (s *store) identity() string {
	if n := &s.named; n.text == "" || n.run != s.run {
		n.run, n.text = s.run, s.name+"-run"+strconv.Itoa(s.run)
	}
	return s.named.text
}

// serve runs a client's request. If the request watches keys and isTracked is true, the client gets
// hints of the next changes of these keys.
func (s *store) serve(client int, req *protocol.Request, isTracked bool) protocol.Reply {
	s.client = client
	reply := s.apply(req)
	s.client = -1
	if req.Epoch != "" { // the identity of the server is so recent that the server cannot have failed over and back since
		if e, ok := s.lookup(req.Epoch); ok {
			reply.Life = max(0, s.left(e))
		}
	}
	if !isTracked || !req.Watch && req.Op != protocol.OpWatch {
		return reply
	}
	looked := []string{req.Key}
	if req.Op == protocol.OpSlots {
		_, looked = s.freeSlots(req)
	}
	for _, key := range looked {
		s.track(key, client)
	}
	return reply
}

// The rest of this file does the same as Redis for connections with CLIENT TRACKING ON and
// REDIRECT, OPTIN and NOLOOP, where CLIENT CACHING YES precedes each look at a key.

// track makes a client get a hint of the next change of key, which need not exist.
func (s *store) track(key string, client int) {
	if slices.ContainsFunc(s.tracked, func(t tracking) bool { return t.key == key && t.client == client }) {
		return
	}
	t := tracking{key: key, client: client, expires: never}
	if e, ok := s.keys[key]; ok {
		t.expires = e.expires
	}
	s.tracked = append(s.tracked, t)
}

// changed sends hints, once. The client that changed the key gets no hint, and no longer tracks the
// key.
func (s *store) changed(key string) {
	s.tracked = slices.DeleteFunc(s.tracked, func(t tracking) bool {
		if t.key == key && t.client != s.client {
			s.hints = append(s.hints, StoreHint{t.client, key})
		}
		return t.key == key
	})
}

// expire looks at the tracked keys that have expired.
func (s *store) expire() {
	for i := len(s.tracked) - 1; i >= 0; i-- {
		if i < len(s.tracked) && s.now() >= s.tracked[i].expires {
			s.lookup(s.tracked[i].key) // ends the tracking
		}
	}
}

// own reports whether a key belongs to the library itself and stays.
func own(key string) bool {
	_, slot := keys.OfSlot(key)
	return keys.Reserved(key) && slot == 0 && !keys.Gate.Has(key)
}
