package redlock

import (
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// Leftovers returns how many names the Locker still knows of: those that are held, waited for or asked for.
func (l *Locker) Leftovers() (busy int) {
	for _, p := range l.places {
		busy += p.engine.Busy()
	}
	return busy
}

// ObserverOf returns the observer that the option makes.
func ObserverOf(o LockerOption) Observer {
	var s settings
	if err := o.applyToLocker(&s); err != nil {
		panic(err)
	}
	return s.observers[0]
}

// BeforeItsContextEnds has f run when the lock's context is about to end.
func (k *Lock) BeforeItsContextEnds(f func()) {
	k.Context()
	k.mu.Lock()
	defer k.mu.Unlock()
	end := k.cancel
	k.cancel = func(cause error) { f(); end(cause) }
}

// FirstOf returns the node that keeps the order of those who wait for a key.
func FirstOf(nodes []protocol.Node, key string) int {
	return engine.New(engine.Config{Nodes: nodes}).Home(key)
}

// OwnValue is Value for a test that keeps the value to itself, so the lock can be handed over.
func (k *Lock) OwnValue() string { return k.parts[0].lock.Claim.Value }
