package sim

import (
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
	Hint   bool // a hint, which is a Reply to an OpWatch
}

const defaultPatience = 3 * time.Second

// Fixed returns a Net that takes d for each leg and loses nothing.
func Fixed(d time.Duration) Net {
	return Net{Travel: func(Leg, *rand.Rand) (time.Duration, bool) { return d, false }, Patience: defaultPatience}
}

// travel draws a leg's fate. The World must be locked.
func (w *World) travel(leg Leg) (time.Duration, bool) {
	way := uint64(0)
	if leg.Reply {
		way = 1
	}
	if leg.Hint {
		way += 2
	}
	key := w.hash(Stem(leg.Key), uint64(leg.Client), uint64(leg.Node), uint64(leg.Op), uint64(leg.Count), way)
	w.fate.Seed(key, hash.Mix(key))
	return w.net.Travel(leg, w.dice)
}

// Stem returns a key without the ticket that it calls. Tickets are drawn anew in each run, and a seed replays.
func Stem(key string) string {
	_, ticket, _ := keys.OfCall(key)
	return strings.TrimSuffix(key, ticket)
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
