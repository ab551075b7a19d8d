package redsync

import (
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/redlock"
)

// Errors of calls, for errors.Is. They wrap the errors of package redlock.
var (
	// ErrFailed means that Lock ended because its context ended, or without a try.
	ErrFailed = errors.New("redsync: failed to acquire lock")
	// ErrExtendFailed means that Extend found the lock lost or released.
	ErrExtendFailed = errors.New("redsync: failed to extend lock")
	// ErrLockAlreadyExpired means that Unlock found the lock lost or released.
	ErrLockAlreadyExpired = errors.New("redsync: failed to unlock, lock was already expired")
)

// ErrTaken means that another client holds the lock. From Extend and Valid, as in redsync, it only
// means that this mutex does not hold it. It is returned as *ErrTaken. It matches redlock.ErrHeld
// if returned by Lock, and otherwise redlock.ErrLost or redlock.ErrReleased.
type ErrTaken struct {
	Nodes []int // nodes without this mutex's lock, in the order of the Locker's nodes

	err error
}

// Error implements error.
func (err ErrTaken) Error() string {
	text := fmt.Sprintf("lock already taken, locked nodes: %v", err.Nodes)
	if err.err != nil {
		text += ": " + err.err.Error()
	}
	return text
}

// Unwrap returns the error of package redlock.
func (err ErrTaken) Unwrap() error { return err.err }

// ErrNodeTaken means that a node refused. It is returned as *ErrNodeTaken.
type ErrNodeTaken struct {
	Node int
}

// Error implements error.
func (err ErrNodeTaken) Error() string { return fmt.Sprintf("node #%d: lock already taken", err.Node) }

// A RedisError means that a node failed or has no vote. It is returned as *RedisError.
type RedisError struct {
	Node int
	Err  error // a *redlock.NodeError
}

// Error implements error.
func (e RedisError) Error() string { return fmt.Sprintf("node #%d: %s", e.Node, e.Err) }

// Unwrap returns Err.
func (e RedisError) Unwrap() error { return e.Err }

// A failure is an error of package redlock that also matches other errors.
type failure struct {
	err   error
	as    error // one of the three errors above, or nil
	nodes []error
}

func (f *failure) Error() string {
	if f.as == nil {
		return f.err.Error()
	}
	return f.as.Error() + ": " + f.err.Error()
}

// Unwrap lists the nodes' errors last.
func (f *failure) Unwrap() []error {
	all := []error{f.err}
	if f.as != nil {
		all = append(all, f.as)
	}
	return append(all, f.nodes...)
}

// failure returns err as an error of redsync. as is one of the three errors above, or nil.
func (m *Mutex) failure(err, as error) error {
	var vote *redlock.QuorumError
	if !errors.As(err, &vote) {
		return &failure{err: err, as: as}
	}
	taken, nodes := m.nodes.errors(vote)
	if as == nil && errors.Is(vote.Err, redlock.ErrHeld) {
		if vote.Causes == nil { // another caller of this process holds the lock on all nodes; no node was asked
			taken = m.nodes.all()
		}
		return &ErrTaken{Nodes: taken, err: err}
	}
	return &failure{err: err, as: as, nodes: nodes}
}

// A nodeList lists the names of a Locker's nodes, in its order.
type nodeList []string

// all returns the numbers of all nodes.
func (l nodeList) all() (all []int) {
	for i := range l {
		all = append(all, i)
	}
	return all
}

// errors returns the nodes that refused, and the errors of all nodes that refused or failed.
func (l nodeList) errors(vote *redlock.QuorumError) (taken []int, all []error) {
	for i, name := range l {
		for _, cause := range vote.Causes.WrappedErrors() {
			node, ok := cause.(*redlock.NodeError)
			switch {
			case !ok || node.Node != name:
			case node.Refused():
				taken = append(taken, i)
				all = append(all, &ErrNodeTaken{Node: i})
			default:
				all = append(all, &RedisError{Node: i, Err: node})
			}
		}
	}
	return taken, all
}
