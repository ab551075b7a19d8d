package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A Net decides how long messages take and which get lost. A partition is a Travel that loses
// the legs of some clients and servers, either way or one. Hints are told apart by
// Leg.Hint: a Travel that loses all of those is a server that gives none.
type Net struct {
	// Travel returns how long a leg takes and whether it gets lost. All that it
	// draws must come from r, which is the leg's own and not to be kept.
	Travel func(leg Leg, r *rand.Rand) (d time.Duration, lost bool)

	// Stray, if not nil, says of a request whether the server runs it d from now, behind its client's back:
	// out of order, and without a reply. After a lost leg that is a request left in a connection that the
	// client has given up, which may run after whatever came by the next one, but once at most; where the leg
	// was not lost, the request is run twice, as a proxy that repeats can make it. A crash of the server ends
	// it, as it ends all that is under way. A hint comes late after a lost leg, and otherwise twice.
	Stray func(leg Leg, lost bool, r *rand.Rand) (d time.Duration, strays bool)

	// Patience is how long a client waits for a reply before it takes the connection for broken: the reply is
	// then Unknown. It is far above a request's timeout, after which a reply is merely late.
	Patience time.Duration
}

// A Leg is one way of one message.
type Leg struct {
	Client int // by the order of NewClient, from zero
	Node   int // index of the server
	Op     protocol.Op
	Key    string
	Count  int  // of this client's requests for this operation and key to this server, from one; of hints likewise
	Reply  bool // on the way back
	Hint   bool // a hint, which is a Reply to an OpWatch, or the request for hints or its reply
}

const defaultPatience = 3 * time.Second

// Fixed returns a Net that takes d for each leg and loses nothing.
func Fixed(d time.Duration) Net {
	return Net{Travel: func(Leg, *rand.Rand) (time.Duration, bool) { return d, false }, Patience: defaultPatience}
}

// travel draws a leg's fate. The World must be locked.
func (w *World) travel(leg Leg) (time.Duration, bool) {
	back := uint64(0)
	if leg.Reply {
		back = 1
	}
	if leg.Hint {
		back += 2
	}
	w.cast(leg, back)
	return w.net.Travel(leg, w.dice)
}

// cast makes the dice those of a leg, for one of its purposes.
func (w *World) cast(leg Leg, purpose uint64) {
	key := w.hash(w.numbered(leg.Key), uint64(leg.Client), uint64(leg.Node), uint64(leg.Op), uint64(leg.Count), purpose)
	w.fate.Seed(key, hash.Mix(key))
}

// Numbered returns a key with the number of the ticket that it calls. Tickets are drawn anew in each run, and the fate
// of messages depends on their keys. A client's are numbered in the order in which it takes them.
func (w *World) Numbered(key string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.numbered(key)
}

func (w *World) numbered(key string) string {
	if _, ticket, isCall := keys.OfCall(key); isCall {
		return strings.TrimSuffix(key, ticket) + w.tickets[ticket]
	}
	return key
}

// number numbers a ticket. The World must be locked.
func (w *World) number(client int, ticket string) {
	if w.tickets[ticket] == "" {
		w.drawn[client]++
		w.tickets[ticket] = fmt.Sprintf("%d-%06d", client, w.drawn[client])
	}
}

// stray draws on, right after travel.
func (w *World) stray(leg Leg, lost bool) (time.Duration, bool) {
	if w.net.Stray == nil {
		return 0, false
	}
	return w.net.Stray(leg, lost, w.dice)
}

// Rand returns a source of randomness that belongs to the World's seed and to
// label alone, for the choices of a test.
func (w *World) Rand(label string) *rand.Rand {
	key := w.hash("test " + label)
	return rand.New(rand.NewPCG(key, hash.Mix(key)))
}

// hash is FNV-1a of the text, mixed with the seed and the numbers.
func (w *World) hash(text string, numbers ...uint64) uint64 {
	key := hash.Mix(w.seed ^ hash.Mix(hash.Text(hash.Basis, text)))
	for _, n := range numbers {
		key = hash.Mix(key ^ n)
	}
	return key
}
