// Package lockorder has the mutexes of this module, in the order in which they may be taken, and
// nothing else has that order. A goroutine that holds one takes only those that stand behind it in
// Order. With the build tag lockorder each Lock checks that, and panics with both names where it is
// not so:
//
//	go test -tags lockorder ./redlock/... ./pool
//
// That is some thirty times as slow, and tests that count allocations fail.
//
// Without the tag a Mutex is a sync.Mutex and costs nothing.
//
// Besides: no node, hint, observer or log of a user is called under a Queue, a Session or a Ballot.
package lockorder

// Order is the order of all mutexes.
var Order = []Rank{
	Running{}, Stripe{}, Watches{}, Hints{}, Queue{}, Session{}, Bond{}, Presence{}, Memory{}, Ballot{}, Trip{},
	Scheduler{}, Chores{}, Votes{}, Events{}, Ticket{}, Slots{}, Slot{}, Keeper{}, Owners{}, Node{}, Conn{}, Doubts{}, Log{},
}

// A Rank is a kind of mutex. No goroutine holds two of one kind.
type Rank interface{ rank() }

type one struct{}

func (one) rank() {}

// The ranks, each with what it guards.
type (
	Running   struct{ one } // agenda: that one goroutine looks at what is due
	Stripe    struct{ one } // ballot: requests for some keys are submitted
	Watches   struct{ one } // redlock: which sessions have their keys watched
	Hints     struct{ one } // pool: who is told of a key
	Queue     struct{ one } // redlock: who waits in the process, and for what
	Session   struct{ one } // redlock: one claim
	Bond      struct{ one } // redlock: the holds of a lock of several names
	Presence  struct{ one } // redlock: whether the Locker is present in a group
	Memory    struct{ one } // trust: what is known of one node's memory
	Ballot    struct{ one } // ballot: what was said
	Trip      struct{ one } // ballot: how long a node takes
	Scheduler struct{ one } // agenda: when what is due
	Chores    struct{ one } // agenda: what is to be done at the nodes
	Votes     struct{ one } // trust: which votes wait for promises
	Events    struct{ one } // redlock: what an observer has yet to be told
	Ticket    struct{ one } // redlock: what a node says of a place in its queue
	Slots     struct{ one } // redlock: what a node says of free permits
	Slot      struct{ one } // redlock: where a permit was free last
	Keeper    struct{ one } // redlock: how the map of the groups is completed
	Owners    struct{ one } // redlock: whose node it is
	Node      struct{ one } // pool: the queue of a server
	Conn      struct{ one } // pool: what was sent and not answered
	Doubts    struct{ one } // pool: what is to be logged
	Log       struct{ one } // redlock: what was logged
)
