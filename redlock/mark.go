package redlock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
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

// Mark returns the highest number that the mark of the lock's name was raised to, zero for none,
// as the nodes tell it that answer within the node timeout. A lock of several names has none.
//
// Errors: ErrLost, ErrReleased or ErrClosed if the lock is not held any more; ErrNoQuorum or ctx's
// error if too few nodes told. Mark is safe for concurrent use.
func (k *Lock) Mark(ctx context.Context) (int64, error) {
	if ctx == nil {
		return 0, nilContext(protocol.OpMark, k.session.name)
	}
	if err := k.markable(); err != nil {
		return 0, err
	}
	highest := int64(0)
	for _, part := range k.holds() {
		n, err := part.mark(ctx)
		if err != nil {
			return highest, err
		}
		highest = max(highest, n)
	}
	return highest, nil
}

// mark is Mark for one hold.
func (k *hold) mark(ctx context.Context) (int64, error) {
	s := k.session
	if err := k.notHeld(); err != nil {
		return 0, err
	}
	r := s.group.askForMark(k.caller, k.settings, s.name)
	r.Wait(ctx, k.settings.timeout(), ballot.Complete)
	if err := k.notHeld(); err != nil {
		return 0, err
	}
	marks, failure := r.marks(ctx)
	if failure != nil {
		return 0, failure
	}
	return slices.Max(marks), nil
}

// askForMark asks all nodes for the mark of a name.
func (g *group) askForMark(eventCtx context.Context, s *settings, name string) *round {
	r := g.newRound(eventCtx, name, protocol.Request{Op: protocol.OpInspect, Key: s.markOf(name), Timeout: s.timeout()})
	r.ask()
	return r
}

// marks returns what the nodes that answered askForMark have, a majority at least.
func (r *round) marks(ctx context.Context) ([]int64, *QuorumError) {
	state := r.State()
	var marks []int64
	for i := range state.Len() {
		reply := state.Reply(i)
		if reply.Outcome != protocol.Granted {
			continue
		}
		mark, err := parseMark(reply.Value)
		if err != nil {
			state.Replace(i, &protocol.Reply{Outcome: protocol.Failed, Err: err})
			continue
		}
		marks = append(marks, mark)
	}
	if len(marks) >= state.Tally.Quorum() {
		return marks, nil
	}
	failure := r.fail(&state, ErrNoQuorum)
	failure.Votes = len(marks)
	if ctx.Err() != nil {
		failure.Err = ctx.Err()
	}
	return nil, failure
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

// RaiseMark raises the lock's mark to a number above all that it was raised to before, for so long
// at least: whole milliseconds. After nil the lock is still held, and no other call with this
// number or a lower one was or will be granted while the marks live, by whichever process: under
// the assumption of exclusion that fewer than h+q-N nodes forget, where h nodes have the mark. A
// node's memory guard does not look after marks.
//
// Errors: ErrMarked if too many nodes have a mark as high; ErrLost, ErrReleased or ErrClosed if the
// lock is not held any more; ErrNoQuorum or ctx's error if too few nodes answered. Some nodes may
// have raised it all the same, and so no later call may be granted this number. RaiseMark is safe
// for concurrent use.
func (k *Lock) RaiseMark(ctx context.Context, to int64, life time.Duration) error {
	s := k.session
	switch {
	case ctx == nil:
		return nilContext(protocol.OpMark, s.name)
	case to <= 0 || to > maxMark:
		return fmt.Errorf("redlock: mark %q: %d must be above zero and below 2^53", s.name, to)
	case life < time.Millisecond || life > 10*maxTTL:
		return fmt.Errorf("redlock: mark %q: a life of %v must be between %v and %v", s.name, life, time.Millisecond, 10*maxTTL)
	}
	if err := k.markable(); err != nil {
		return err
	}
	for _, part := range k.holds() {
		if err := part.raiseMark(ctx, mark{to, life}); err != nil {
			return err
		}
	}
	return nil
}

// raiseMark is RaiseMark for one hold.
func (k *hold) raiseMark(ctx context.Context, m mark) error {
	s := k.session
	if err := k.notHeld(); err != nil {
		return err
	}
	r := s.group.askToMark(k.caller, k.settings, s.name, m)
	r.Wait(ctx, k.settings.timeout(), ballot.Settled)
	if err := k.notHeld(); err != nil {
		return err
	}
	if failure := r.unconfirmed(ctx, ErrMarked); failure != nil {
		return failure
	}
	return nil
}

// A mark is a number that is to be on the nodes for so long.
type mark struct {
	to   int64
	life time.Duration
}

// askToMark asks all nodes to raise the mark of a name.
func (g *group) askToMark(eventCtx context.Context, s *settings, name string, m mark) *round {
	r := g.newRound(eventCtx, name, protocol.Request{
		Op: protocol.OpMark, Key: s.markOf(name), Mark: m.to, TTL: m.life.Truncate(time.Millisecond), Timeout: s.timeout(),
	})
	r.ask()
	return r
}

// markable returns why the lock has no mark, or nil if it has one while it is held.
func (k *Lock) markable() error {
	if names := k.Names(); len(names) > 1 {
		return fmt.Errorf("redlock: mark %q: a lock of several names has no mark; acquire one of them", names)
	}
	return nil
}

// markOf returns the key of a lock's mark.
func (s *settings) markOf(name string) string { return keys.Mark.Of(s.prefix + name) }
