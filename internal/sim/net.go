package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A Net decides what becomes of messages. Duplication and partitions belong
// here too, once something needs them.
type Net struct {
	// Travel returns how long a leg takes and whether it gets lost. All that it
	// draws must come from r.
	Travel func(leg Leg, r *rand.Rand) (d time.Duration, lost bool)

	// Patience is how long a client waits for a reply before it takes the
	// connection for broken: the reply is then Unknown. It is far above a
	// request's timeout, after which a reply is merely late.
	Patience time.Duration
}

// A Leg is one way of one message.
type Leg struct {
	Client int // by the order of NewClient, from zero
	Node   int // index of the server
	Op     redlock.Op
	Key    string
	Count  int  // of this client's requests for this operation and key to this server, from one
	Reply  bool // on the way back
}

const defaultPatience = 3 * time.Second

// Fixed returns a Net that takes d for each leg and loses nothing.
func Fixed(d time.Duration) Net {
	return Net{Travel: func(Leg, *rand.Rand) (time.Duration, bool) { return d, false }, Patience: defaultPatience}
}

// travel draws a leg's fate.
func (w *World) travel(leg Leg) (time.Duration, bool) {
	back := uint64(0)
	if leg.Reply {
		back = 1
	}
	return w.net.Travel(leg, w.rand(leg.Key, uint64(leg.Client), uint64(leg.Node), uint64(leg.Op), uint64(leg.Count), back))
}

// Rand returns a source of randomness that belongs to the World's seed and to
// label alone: for what a test decides.
func (w *World) Rand(label string) *rand.Rand { return w.rand("test " + label) }

func (w *World) rand(text string, numbers ...uint64) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(text))
	key := mix(w.seed ^ mix(h.Sum64()))
	for _, n := range numbers {
		key = mix(key ^ n)
	}
	return rand.New(rand.NewPCG(key, mix(key)))
}

// mix is the output function of SplitMix64: it spreads numbers that differ in
// one bit all over the range.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
