package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A World is servers, clients and the network between them. All its methods,
// and those of what is in it, are safe for concurrent use.
type World struct {
	seed     uint64
	servers  []*Server
	timeline timeline

	// mu guards all of the simulation's state. It is never held while a client
	// is told something, because the client's answer is the next request.
	mu      sync.Mutex
	net     Net
	clients []*Client
	watch   func(Step)

	fate rand.PCG   // seeded anew for each leg, by way of
	dice *rand.Rand // which is made once
}

// New returns a World of n servers whose clocks are exact, with a network that
// takes no time and loses nothing.
func New(seed uint64, n int) *World {
	w := &World{seed: seed, net: Fixed(0), timeline: timeline{origin: time.Now()}}
	w.dice = rand.New(&w.fate)
	for i := range n {
		w.servers = append(w.servers, newServer(w, i, fmt.Sprintf("node%d", i+1)))
	}
	return w
}

// Space keeps whatever happens in the World at least a nanosecond apart. In a
// bubble, what one event sets off is then over before the next one, so that
// goroutines do not race for what comes first; but times are no longer exact.
// It is called before anything happens.
func (w *World) Space() { w.timeline.apart = time.Nanosecond }

// Now is time.Now in the World.
func (w *World) Now() time.Time { return w.timeline.origin.Add(w.timeline.now()) }

// Sleep is time.Sleep in the World.
func (w *World) Sleep(d time.Duration) { w.timeline.sleep(d) }

// Servers returns the servers, named node1, node2 and so on.
func (w *World) Servers() []*Server { return w.servers }

// SetNet changes the network for messages that are sent from now on.
func (w *World) SetNet(n Net) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.net = n
}

// Watch has f told of every step from now on. It is called with the World
// locked: it must not call back.
func (w *World) Watch(f func(Step)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch = f
}

// A Stage is how far a request has come.
type Stage string

// The stages. A request that was submitted need not reach the others, and one
// that the client got a reply to may still be run.
const (
	Submitted Stage = "submitted"
	Run       Stage = "run"
	Replied   Stage = "replied"
	Hinted    Stage = "hinted" // a hint has come: of a key, or none after FLUSHALL
)

// A Step is one thing that happened to a request, or a hint.
type Step struct {
	At      time.Time
	Client  int
	Node    int
	Stage   Stage
	Op      redlock.Op
	Key     string
	Value   string
	Outcome redlock.Outcome // of stages Run and Replied
}

func (w *World) tell(c *call, stage Stage, o redlock.Outcome) {
	if w.watch != nil {
		w.watch(Step{w.Now(), c.link.client.id, c.link.server.index, stage, c.req.Op, c.req.Key, c.req.Value, o})
	}
}

func (w *World) tellHint(l *link, key string) {
	if w.watch != nil {
		w.watch(Step{At: w.Now(), Client: l.client.id, Node: l.server.index, Stage: Hinted, Op: redlock.OpWatch, Key: key})
	}
}
