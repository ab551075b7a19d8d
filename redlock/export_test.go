package redlock

import (
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// Leftovers returns the number of names in the Locker that are held, requested, or have waiters.
func (l *Locker) Leftovers() (busy int) {
	for _, p := range l.places {
		busy += p.engine.Busy()
	}
	return busy
}

// GroupOf returns the group of the lock name. It returns an empty string for a Locker created by
// New.
func (l *Locker) GroupOf(name string) string { return l.placeOf(name).name }

// ObserverOf returns the observer created by the option.
func ObserverOf(o LockerOption) Observer {
	var s settings
	if err := o.applyToLocker(&s); err != nil {
		panic(err)
	}
	return s.observers[0]
}

// BeforeItsContextEnds calls f just before the lock's context ends.
func (k *Lock) BeforeItsContextEnds(f func()) {
	k.Context()
	k.mu.Lock()
	defer k.mu.Unlock()
	end := k.cancel
	k.cancel = func(cause error) { f(); end(cause) }
}

// FirstOf returns the node that keeps the queue of a key.
func FirstOf(nodes []protocol.Node, key string) int {
	return engine.New(engine.Config{Nodes: nodes}).Home(key)
}

// OwnValue returns the value without publishing it, so that the lock can still be handed over.
func (k *Lock) OwnValue() string { return k.parts[0].lock.Claim.Value }
