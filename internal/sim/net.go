package sim

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A Net decides how long messages take and which get lost. A partition is a Travel that loses the
// legs of some clients and servers, in one or both directions. Leg.Hint marks hints: a Travel that
// loses all of these simulates a server without hints.
type Net struct {
	// Travel returns the duration of a leg, and whether it gets lost. It must draw all random
	// numbers from r, which belongs to the leg, and must not keep r.
	Travel func(leg Leg, r *rand.Rand) (d time.Duration, lost bool)

	// Patience is the time that a client waits for a reply before it regards the connection as
	// broken, and the reply becomes Unknown. It is far above a request's timeout, after which a
	// reply is only late.
	Patience time.Duration
}

// A Leg is one way of one message.
type Leg struct {
	Client int // in the order of NewClient, from zero
	Node   int // index of the server
	Op     protocol.Op
	Key    string
	Count  int  // counts this client's requests for the operation and key to this server, from one; the same applies to hints
	Reply  bool // the leg is on the way back
	Hint   bool // a hint, which is a Reply to an OpWatch
}

const defaultPatience = 3 * time.Second

// Fixed returns a Net that takes d for each leg and loses nothing.
func Fixed(d time.Duration) Net {
	return Net{Travel: func(Leg, *rand.Rand) (time.Duration, bool) { return d, false }, Patience: defaultPatience}
}

// travel draws the duration and the loss of a leg. The World must be locked.
func (w *World) travel(leg Leg) (time.Duration, bool) {
	way := uint64(0)
	if leg.Reply {
		way = 1
	}
	if leg.Hint {
		way += 2
	}
	key := w.hash(Stem(leg.Key), uint64(leg.Client), uint64(leg.Node), uint64(leg.Op), uint64(leg.Count), way)
	w.fate.Seed(key, keys.Mix(key))
	return w.net.Travel(leg, w.dice)
}

// Stem removes the ticket from the key of a call, because tickets are random in each run, and a
// seed must replay.
func Stem(key string) string {
	_, ticket, _ := keys.OfCall(key)
	return strings.TrimSuffix(key, ticket)
}

// Rand returns a source of randomness for the choices of a test. It depends only on the World's
// seed and on label.
func (w *World) Rand(label string) *rand.Rand {
	key := w.hash("test " + label)
	return rand.New(rand.NewPCG(key, keys.Mix(key)))
}

// hash is FNV-1a of the text, mixed with the seed and the numbers.
func (w *World) hash(text string, numbers ...uint64) uint64 {
	key := keys.Mix(w.seed ^ keys.Mix(keys.Hash(keys.Basis, text)))
	for _, n := range numbers {
		key = keys.Mix(key ^ n)
	}
	return key
}
