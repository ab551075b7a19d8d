package ballot

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Voters are the nodes that ballots ask, and how long each takes to answer. They are safe for
// concurrent use.
type Voters struct {
	nodes  []protocol.Node
	lot    *park.Lot
	jitter func(time.Duration) time.Duration
	trips  []trip
	grants []plainGrant // of each node

	seed  maphash.Seed
	order [64]lockorder.Mutex[lockorder.Stripe] // see Order
}

// NewVoters returns Voters that nothing is known of. jitter draws a duration below another.
func NewVoters(nodes []protocol.Node, lot *park.Lot, jitter func(time.Duration) time.Duration) *Voters {
	return &Voters{
		nodes: nodes, lot: lot, jitter: jitter, seed: maphash.MakeSeed(),
		trips: make([]trip, len(nodes)), grants: make([]plainGrant, len(nodes)),
	}
}

// All returns the set of all nodes.
func (v *Voters) All() quorum.Set { return quorum.All(len(v.nodes)) }

// Order returns the lock under which a request is submitted to several nodes. All requests for one key
// go to the nodes in the same order, whichever of them is first. Otherwise several callers of this
// process that try for a name at once could split the nodes among them, and each be refused by the
// others.
//
// A fixed number of locks serves all keys: they are held only while requests are queued. A request for
// a set of keys has the locks of all its keys, so that it keeps the order with those for single ones.
func (v *Voters) Order(req *protocol.Request) sync.Locker {
	if req.Set == nil {
		return &v.order[v.stripe(req.Key)]
	}
	var asked [len(v.order)]bool
	for _, key := range req.Set.Keys {
		asked[v.stripe(key)] = true
	}
	var all orders
	for i := range v.order {
		if asked[i] {
			all = append(all, &v.order[i])
		}
	}
	return all
}

func (v *Voters) stripe(key string) int {
	return int(maphash.String(v.seed, key) % uint64(len(v.order)))
}

// orders are several locks that are always taken in the same order.
type orders []sync.Locker

// Lock implements sync.Locker.
func (o orders) Lock() {
	for _, m := range o {
		m.Lock()
	}
}

// Unlock implements sync.Locker.
func (o orders) Unlock() {
	for _, m := range o {
		m.Unlock()
	}
}
