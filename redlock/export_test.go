package redlock

import (
	"context"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// Leftovers returns how many locks and names the Locker still knows of, and
// how many replies Close would wait for.
func (l *Locker) Leftovers() (scheduled, queued, inflight int) {
	for _, p := range l.places {
		scheduled += p.engine.Busy()
	}
	return scheduled, 0, 0
}

// ObserverOf returns the observer that the option makes.
func ObserverOf(o LockerOption) Observer {
	var s settings
	if err := o.applyToLocker(&s); err != nil {
		panic(err)
	}
	return s.observers[0]
}

// BeforeItsContextEnds has f run when the lock's context is about to end. queueFree
// tells whether other callers of the Locker can go on meanwhile.
func (k *Lock) BeforeItsContextEnds(f func(queueFree bool)) {
	k.Context()
	k.mu.Lock()
	defer k.mu.Unlock()
	end := k.cancel
	k.cancel = func(cause error) { f(true); end(cause) }
}

// FirstOf returns the node that keeps the order of those who wait for a key.
func FirstOf(nodes []protocol.Node, key string) int {
	return engine.New(engine.Config{Nodes: nodes}).Home(key)
}

// VoteOnce is TryAcquire, but a vote that was split is not tried again.
func (l *Locker) VoteOnce(ctx context.Context, name string) (*Lock, error) {
	c, err := l.begin(ctx, demand{name: name, isTry: true})
	if err != nil {
		return nil, err
	}
	p := l.places[0]
	got, err := engine.TryAll(ctx, []engine.Target{{Engine: p.engine, Key: p.prefix + name}}, c.terms())
	if err != nil || got[0].Failure != nil {
		return nil, c.errorIn(p, name, got[0].Failure, err)
	}
	k := &Lock{call: c, at: p, one: got[0].Lock}
	k.has = &k.one
	k.complete()
	return k, nil
}
