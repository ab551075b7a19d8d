package redlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// A mark is a number stored next to a lock, under the key redlock:once:{KEY}, that only rises. It
// outlives the lock and shows later holders the progress of earlier ones: package once stores the
// last tick of a job in it.
//
// A node raises a mark to a number at most once, because the mark must be lower before. A raise
// needs a majority, and two majorities share a node. Therefore at most one raise to each number is
// granted, even if two callers believe that they hold the lock. The lock prevents callers from
// splitting the nodes among them, in which case no raise would be granted.
//
// A mark is read from all nodes that answer in time, and from at least a majority, so each granted
// raise is seen on one of them. The mark is read while the lock is held, which is after all raises
// of earlier holders, because these end with their locks.

const maxMark = 1<<53 - 1

// Mark returns the highest number to which the mark of the lock's name was raised, or zero. It asks
// all nodes, and waits for at most the node timeout. A lock of several names has no mark. Mark is
// safe for concurrent use.
//
// The error is ErrLost, ErrReleased or ErrClosed if the lock is no longer held. It is ErrNoQuorum
// or ctx's error if too few nodes answered.
func (k *Lock) Mark(ctx context.Context) (int64, error) {
	return k.askMarks(ctx, protocol.Request{Op: protocol.OpInspect})
}

// RaiseMark raises the lock's mark to a higher number, for at least life, in whole milliseconds. If
// it returns nil, the lock is still held, and no other process was or will be granted this number
// or a lower one while the marks live. This assumes that fewer than h+q-N nodes forget, where h
// nodes have the mark; the memory guard does not watch marks. RaiseMark is safe for concurrent use.
//
// The error is ErrMarked if too many nodes have a mark as high. It is ErrLost, ErrReleased or
// ErrClosed if the lock is no longer held. It is ErrNoQuorum or ctx's error if too few nodes
// answered. Some nodes may then have the mark, so this number may not be granted to a later call.
func (k *Lock) RaiseMark(ctx context.Context, to int64, life time.Duration) error {
	switch {
	case to <= 0 || to > maxMark:
		return fmt.Errorf("redlock: mark %q: %d must be above zero and below 2^53", k.name, to)
	case life < time.Millisecond || life > 10*maxTTL:
		return fmt.Errorf("redlock: mark %q: a life of %v must be between %v and %v", k.name, life, time.Millisecond, 10*maxTTL)
	}
	_, err := k.askMarks(ctx, protocol.Request{Op: protocol.OpMark, Mark: to, TTL: life.Truncate(time.Millisecond)})
	return err
}

// askMarks sends a request about the mark to all nodes while the lock is held. highest is the
// result of an inspection.
func (k *Lock) askMarks(ctx context.Context, r protocol.Request) (highest int64, err error) {
	switch {
	case ctx == nil:
		return 0, nilContext(protocol.OpMark, k.name)
	case k.names != nil:
		return 0, fmt.Errorf("redlock: mark %q: a lock of several names has no mark: acquire one of them", k.names)
	}
	if err := k.notHeld(); err != nil {
		return 0, err
	}
	isEnough, gone, of := engine.All, ErrNoQuorum, *k.call
	of.observed = nil // the events belong to the lock, and not to its acquisition
	if r.Op == protocol.OpMark {
		isEnough, gone = engine.Decided, ErrMarked
	}
	r.Timeout = k.settings.Timeout
	p := k.parts[0].at
	r.Key = keys.Mark.Of(k.parts[0].target().Key)
	poll := p.engine.Ask(r, &of)
	poll.Wait(ctx, isEnough)
	if err := k.notHeld(); err != nil {
		return 0, err
	}
	if r.Op == protocol.OpInspect {
		highest = slices.Max(append(poll.Marks(), 0))
	}
	return highest, p.unmet(ctx, k.name, poll, gone)
}

// notHeld returns the reason the lock is not held, or nil if it is.
func (k *Lock) notHeld() error {
	if k.Remaining() > 0 {
		return nil
	}
	if k.hasEnded() == nil { // the lock has not ended yet, but its deadline has passed
		return fmt.Errorf("redlock: %q: %w", k.name, errNotExtended)
	}
	return k.failed(context.Background(), protocol.OpMark, &core.Failure{Kind: core.NotHeld})
}
