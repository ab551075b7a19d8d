package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A World is servers, clients and the network between them. All its methods,
// and those of its parts, are safe for concurrent use.
type World struct {
	seed     uint64
	servers  []*Server
	timeline timeline

	// mu guards all of the simulation's state. It is never held while a client
	// gets a reply or a hint, because the client may answer with the next request.
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
		s := &Server{store: newStore(i, fmt.Sprintf("node%d", i+1), time.Duration(w.timeline.origin.UnixNano())), world: w}
		w.servers = append(w.servers, s)
	}
	return w
}

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

// Watch has f called with every step from now on. The World is locked then, so f must not call back.
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
	Hinted    Stage = "hinted" // a hint has come: of a key, or of all keys (none is named) after FLUSHALL
)

// A Step is one thing that happened to a request, or a hint.
type Step struct {
	At      time.Time
	Client  int
	Node    int
	Stage   Stage
	Op      protocol.Op
	Key     string
	Value   string
	Outcome protocol.Outcome // of stages Run and Replied
}

func (w *World) tell(c *call, stage Stage, o protocol.Outcome) {
	if w.watch != nil {
		w.watch(Step{w.Now(), c.link.client.id, c.link.server.index, stage, c.req.Op, c.req.Key, c.req.Value, o})
	}
}

func (w *World) tellHint(l *link, key string) {
	if w.watch != nil {
		w.watch(Step{At: w.Now(), Client: l.client.id, Node: l.server.index, Stage: Hinted, Op: protocol.OpWatch, Key: key})
	}
}

var (
	errStuck   = errors.New("sim: everybody waits, and nothing is to come")
	errEndless = errors.New("sim: no end in sight")
)

// Play runs script in a time of the World's own, while that of the bubble stands still: it jumps from one
// event to the next, but not before all that the last one set off has come to rest. So nothing races, and a
// seed replays to the last step. It is also several times as quick as the bubble's time, for which the
// runtime would have to be woken at each event.
//
// All code that takes part must go by the World's time or a Client's. Play is called once, before anything
// happens, and returns when script does. Its error says that the script waits for an event that never comes,
// or is not over by limit; its goroutines are then still there.
func (w *World) Play(limit time.Duration, script func()) error {
	defer w.PrintSeed()
	w.timeline.play()
	over := false
	go func() {
		defer w.PrintSeed()
		script()
		over = true
	}()
	for {
		synctest.Wait()
		if over {
			return nil
		}
		switch e := w.timeline.step(); {
		case e == nil:
			return errStuck
		case e.at > limit:
			return errEndless
		}
	}
}

// PrintSeed is deferred by the goroutines of a script: if one panics, it prints the seed,
// by which the panic can be replayed.
func (w *World) PrintSeed() {
	if cause := recover(); cause != nil {
		fmt.Fprintf(os.Stderr, "sim: in the World of seed %d:\n", w.seed)
		panic(cause)
	}
}
