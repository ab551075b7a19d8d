// Package lockorder has the order in which the mutexes of package pool and of the log may be taken. A
// goroutine that holds one takes only those that stand behind it in Order. With the build tag lockorder
// each Lock checks that, and panics with both names where it is not so:
//
//	go test -tags lockorder ./pool
//
// That is some thirty times as slow, and tests that count allocations fail. Without the tag a Mutex is a
// sync.Mutex and costs nothing.
//
// The comments of packages engine and group have the order of those of package redlock, which are taken
// before these.
package lockorder

// Order is the order of all these mutexes.
var Order = []Rank{Hints{}, Queue{}, Sent{}, Doubts{}, Log{}}

// A Rank is a kind of mutex. No goroutine holds two of one kind.
type Rank interface{ rank() }

type one struct{}

func (one) rank() {}

// The ranks, each with what it guards.
type (
	Hints  struct{ one } // pool: who is told of a key
	Queue  struct{ one } // pool: the requests to a server
	Sent   struct{ one } // pool: what was sent and not answered
	Doubts struct{ one } // pool: what is to be logged
	Log    struct{ one } // redlock: what was logged
)
