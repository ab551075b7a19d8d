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
// A fixed number of locks serves all keys: they are held only while requests are queued.
func (v *Voters) Order(req *protocol.Request) sync.Locker { return &v.order[v.stripe(req.Key)] }

func (v *Voters) stripe(key string) int {
	return int(maphash.String(v.seed, key) % uint64(len(v.order)))
}
