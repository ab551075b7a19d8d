package redlock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A mark is a number beside a lock, under the key redlock:once:{KEY}, that only rises. It outlives
// the lock, so that later holders learn how far earlier ones came: package once keeps the last
// tick of a job there.
//
// A node raises a mark to a number at most once, because it was lower before and is not after. A
// raise is granted by a majority, and two majorities share a node, so of all that raise the mark
// to one number at most one is granted, even if two take themselves for the holder. The lock keeps
// them from splitting the nodes among them, which would grant it to none.
//
// A mark is read from all nodes that answer in time, and a majority at least: a raise that was
// granted is on one of those. The reading begins when the lock is held, so it is behind all raises
// of earlier holders, who end when their lock does.

const maxMark = 1<<53 - 1

// Mark returns the highest number that the mark of the lock's name was raised to, and zero for
// none. It asks all nodes, and waits for the node timeout at most. A lock of several names has no
// mark. Mark is safe for concurrent use.
//
// Errors: ErrLost, ErrReleased or ErrClosed if the lock is no longer held; ErrNoQuorum or ctx's
// error if too few nodes answered.
func (k *Lock) Mark(ctx context.Context) (int64, error) {
	if ctx == nil {
		return 0, nilContext(protocol.OpMark, k.name)
	}
	if err := k.markable(); err != nil {
		return 0, err
	}
	highest, of := int64(0), k.held()
	for _, p := range k.places() {
		poll := p.engine.Ask(protocol.Request{Op: protocol.OpInspect, Key: keys.Mark.Of(p.prefix + k.name), Timeout: k.settings.timeout()}, of)
		poll.Wait(ctx, nil)
		if err := k.notHeld(); err != nil {
			return 0, err
		}
		for i := range poll.Replies {
			r := &poll.Replies[i]
			if r.Outcome != protocol.Granted {
				continue
			}
			mark, err := parseMark(r.Value)
			if err != nil {
				poll.Tally.Granted--
				*r = protocol.Reply{Outcome: protocol.Failed, Err: err}
				poll.Tally.Add(r.Outcome)
				continue
			}
			highest = max(highest, mark)
		}
		if err := p.unmet(ctx, k.name, poll, ErrNoQuorum); err != nil {
			return 0, err
		}
	}
	return highest, nil
}

// parseMark reads what a node holds. A number of other digits than the scripts write is none.
func parseMark(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 53)
	if err != nil {
		return 0, fmt.Errorf("its mark is no number (delete the key %s* on this node when the tick is over)", keys.Mark)
	}
	return int64(n), nil
}

// RaiseMark raises the lock's mark to a higher number, for at least life, in whole milliseconds.
// After nil the lock is still held, and no other process was or will be granted this number or a
// lower one while the marks live. This assumes that fewer than h+q-N nodes forget, where h nodes
// have the mark; the memory guard does not watch marks. RaiseMark is safe for concurrent use.
//
// Errors: ErrMarked if too many nodes have a mark as high; ErrLost, ErrReleased or ErrClosed if the
// lock is no longer held; ErrNoQuorum or ctx's error if too few nodes answered. Some nodes may then
// have the mark, so no later call may be granted this number.
func (k *Lock) RaiseMark(ctx context.Context, to int64, life time.Duration) error {
	switch {
	case ctx == nil:
		return nilContext(protocol.OpMark, k.name)
	case to <= 0 || to > maxMark:
		return fmt.Errorf("redlock: mark %q: %d must be above zero and below 2^53", k.name, to)
	case life < time.Millisecond || life > 10*maxTTL:
		return fmt.Errorf("redlock: mark %q: a life of %v must be between %v and %v", k.name, life, time.Millisecond, 10*maxTTL)
	}
	if err := k.markable(); err != nil {
		return err
	}
	of := k.held()
	for _, p := range k.places() {
		poll := p.engine.Ask(protocol.Request{
			Op: protocol.OpMark, Key: keys.Mark.Of(p.prefix + k.name), Mark: to, TTL: life.Truncate(time.Millisecond), Timeout: k.settings.timeout(),
		}, of)
		poll.Wait(ctx, func(t quorum.Tally) bool { return t.Verdict() == quorum.Won || t.Gone() })
		if err := k.notHeld(); err != nil {
			return err
		}
		if err := p.unmet(ctx, k.name, poll, ErrMarked); err != nil {
			return err
		}
	}
	return nil
}

// held is the call whose events are about the lock, and not about its acquisition.
func (k *Lock) held() *call {
	c := *k.call
	c.events = c.ctx
	return &c
}

// markable returns why the lock has no mark, or nil if it has one while it is held.
func (k *Lock) markable() error {
	if k.names != nil {
		return fmt.Errorf("redlock: mark %q: a lock of several names has no mark; acquire one of them", k.names)
	}
	return k.notHeld()
}

// notHeld returns why the lock is not held, or nil if it is.
func (k *Lock) notHeld() error {
	if k.Remaining() > 0 {
		return nil
	}
	if k.hasEnded() == nil { // but its deadline has passed
		return &loss{name: k.name}
	}
	return k.failed(context.Background(), protocol.OpMark, &core.Failure{Kind: core.NotHeld})
}

// places returns those in which the Lock is held.
func (k *Lock) places() (places []*place) {
	if k.parts == nil {
		return []*place{k.at}
	}
	for _, p := range k.parts {
		if !slices.Contains(places, p.at) {
			places = append(places, p.at)
		}
	}
	return places
}
