package group

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// The servers keep the stage of the map as a mark. All requests here wait for the servers' timeout at most.

// markLife is how long the mark of a stage outlives its last writing: ten times the longest TTL of a lock.
const markLife = 10 * 365 * 24 * time.Hour

// look asks the servers of all groups for their stage, at the same time. The result is in the order of
// the places.
func (g *Groups) look(ctx context.Context) (seen []sight) {
	var asked []func() sight
	for _, p := range g.places {
		asked = append(asked, p.ask(ctx))
	}
	for _, answer := range asked {
		seen = append(seen, answer())
	}
	return seen
}

// ask begins to ask the servers for their stage. The result waits for the answers.
func (p *Place) ask(ctx context.Context) func() sight {
	poll := p.poll(protocol.Request{Op: protocol.OpInspect})
	return func() (s sight) {
		poll.Wait(ctx, engine.All)
		marks := poll.Marks()
		if f := poll.Failure(); f != nil {
			return sight{err: &Failure{Group: p.Name(), Err: ctx.Err(), Failure: f}}
		}
		slices.Sort(marks)
		highest := marks[len(marks)-1]
		return sight{
			isWhole:  len(marks) == len(p.group.Nodes),
			lowest:   stage(marks[0] >> stageBits),
			highest:  stage(highest >> stageBits),
			majority: stage(marks[len(marks)-poll.Tally.Quorum()] >> stageBits),
			written:  time.Unix(highest&(1<<stageBits-1)*60, 0),
		}
	}
}

// write raises the group's stage, or writes the same one anew. It returns when a majority has come
// to it, or why not.
func (p *Place) write(ctx context.Context, to stage) error {
	poll := p.poll(protocol.Request{Op: protocol.OpMark, Mark: to.at(p.groups.config.Wall())})
	poll.Wait(ctx, func(t quorum.Tally) bool { return t.Verdict() != quorum.Pending })
	if poll.Tally.Verdict() == quorum.Won {
		return nil
	}
	// Others may have written it at the same time, each on some of the servers.
	switch seen := p.ask(ctx)(); {
	case seen.err != nil:
		return seen.err
	case seen.majority < to:
		return fmt.Errorf("redlock: group %q: version %d of the map: %w", p.Name(), to.version(), ErrNotYet)
	}
	return nil
}

// writeFirst writes a stage on servers that have none. One that comes late changes nothing on others.
func (p *Place) writeFirst(ctx context.Context, first stage) {
	mark := strconv.FormatInt(first.at(p.groups.config.Wall()), 10)
	p.poll(protocol.Request{Op: protocol.OpAcquire, Value: mark}).Wait(ctx, engine.All)
}

// poll asks all servers of the group about the mark. Its key has no group's prefix: groups that share servers meet
// there.
func (p *Place) poll(r protocol.Request) *engine.Poll {
	c := p.groups.config
	r.Key, r.Timeout = keys.Mark.Of(c.Prefix+VersionName), c.Timeout
	if r.Op != protocol.OpInspect {
		r.TTL = markLife
	}
	return p.engine.Ask(r, nil)
}
