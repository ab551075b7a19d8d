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

// A World has servers, clients and the network between them. All its methods, and the methods of
// its parts, are safe for concurrent use.
type World struct {
	seed     uint64
	servers  []*Server
	timeline timeline

	// mu guards all state of the simulation. It is never held while a client gets a reply or a
	// hint, because the client may answer with the next request.
	mu      sync.Mutex
	net     Net
	clients []*Client
	watch   func(Step)

	fate rand.PCG   // source of dice, seeded again for each leg
	dice *rand.Rand // created once
}

// New returns a World of n servers whose clocks are exact. Its network takes no time and loses
// nothing.
func New(seed uint64, n int) *World {
	w := &World{seed: seed, net: Fixed(0), timeline: timeline{origin: time.Now()}}
	w.dice = rand.New(&w.fate)
	for i := range n {
		s := &Server{store: newStore(i, fmt.Sprintf("node%d", i+1), time.Duration(w.timeline.origin.UnixNano())), world: w}
		w.servers = append(w.servers, s)
	}
	return w
}

// Now is like time.Now, in the time of the World.
func (w *World) Now() time.Time { return w.timeline.origin.Add(w.timeline.now()) }

// Sleep is like time.Sleep, in the time of the World.
func (w *World) Sleep(d time.Duration) { w.timeline.sleep(d) }

// Servers returns the servers, named node1, node2 and so on.
func (w *World) Servers() []*Server { return w.servers }

// SetNet changes the network for messages that are sent from now on.
func (w *World) SetNet(n Net) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.net = n
}

// Watch makes the World call f at every step from now on. The World is locked during the call, so f
// must not call it.
func (w *World) Watch(f func(Step)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch = f
}

// A Stage is the progress of a request.
type Stage string

// The stages of a request. A submitted request need not reach the others, and a request may still
// be run after the client got its reply.
const (
	Submitted Stage = "submitted"
	Run       Stage = "run"
	Replied   Stage = "replied"
	Hinted    Stage = "hinted" // a hint has arrived: of a key, or of all keys (an empty name) after FLUSHALL
)

// A Step is one event of a request, or a hint.
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
	errStuck   = errors.New("sim: all goroutines wait, and no event is left")
	errEndless = errors.New("sim: the script does not end")
)

// Play runs script in the World's own time, while the bubble's time stands still. It jumps from one
// event to the next as soon as all goroutines that the last event woke are idle. So nothing races,
// and a seed replays to the last step. Play is also several times as fast as the bubble's time, in
// which the runtime would have to be woken at each event.
//
// All code that takes part must use the World's time or a Client's time. Play is called once,
// before the first event, and returns when script does. It returns an error if the script waits for
// an event that never happens, or has not ended by limit; its goroutines then still exist.
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

// PrintSeed is deferred by the goroutines of a script. If a goroutine panics, PrintSeed prints the
// seed, which replays the panic.
func (w *World) PrintSeed() {
	if cause := recover(); cause != nil {
		fmt.Fprintf(os.Stderr, "sim: in the World of seed %d:\n", w.seed)
		panic(cause)
	}
}
