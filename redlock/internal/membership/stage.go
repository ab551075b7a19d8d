package membership

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Stage is how far the versions of the map have come: a mark in each group, whose lower bits are the
// minute in which it was written (at).
type Stage int64

// stageBits is the room for the minutes.
const stageBits = 32

// MaxVersion bounds versions by the room that a mark has for them.
const MaxVersion = 1 << 19

// founding is the stage in which version v is the first that clients have, and not in all groups yet.
func founding(v int) Stage { return Stage(3 * v) }

// completed is the stage in which clients may have version v alone.
func completed(v int) Stage { return Stage(3*v + 1) }

// retired is the stage in which no client with version v as its newest can come any more.
func retired(v int) Stage { return Stage(3*v + 2) }

// Version is the one that the stage is of.
func (s Stage) Version() int { return int(s / 3) }

// IsRetired reports whether no client with that version as its newest can come any more.
func (s Stage) IsRetired() bool { return s > 0 && s == retired(s.Version()) }

// Proves reports whether version v is complete where a group has come to the stage. To found a later one
// proves nothing of those before.
func (s Stage) Proves(v int) bool { return s >= completed(v) && !s.isFounding() }

func (s Stage) isFounding() bool { return s == founding(s.Version()) }

// at is the mark for the stage, written now.
func (s Stage) at(now time.Time) int64 { return int64(s)<<stageBits | now.Unix()/60 }

// VersionName is the name whose mark has the stage. That has the Locker's prefix without the group's, so
// groups that have servers in common meet there.
const VersionName = keys.Map + "version"

// presenceName is the name that clients with the version as their newest hold as readers.
func presenceName(version int) string { return keys.Map + strconv.Itoa(version) }

// A Sight is what the servers of a group tell of its stage.
type Sight struct {
	Highest  Stage
	Majority Stage // that most servers have come to at least
	Err      error // too few have told, or nil

	lowest  Stage // that all servers that told have come to at least
	whole   bool  // all have told
	written time.Time
}

// Look asks the servers of all groups for their stage, at the same time. The result is in the order of
// All.
func (m *Map) Look(ctx context.Context) []Sight {
	asked := make([]func() ([]int64, error), len(m.all))
	for i, of := range m.all {
		asked[i] = of.group.AskForMarks(ctx)
	}
	seen := make([]Sight, len(m.all))
	for i, of := range m.all {
		seen[i] = of.sight(asked[i]())
	}
	return seen
}

func (of *Member) look(ctx context.Context) Sight { return of.sight(of.group.AskForMarks(ctx)()) }

func (of *Member) sight(marks []int64, err error) Sight {
	if err != nil {
		return Sight{Err: err}
	}
	slices.Sort(marks)
	n := len(of.group.Servers())
	highest := marks[len(marks)-1]
	return Sight{
		whole:    len(marks) == n,
		lowest:   Stage(marks[0] >> stageBits),
		Highest:  Stage(highest >> stageBits),
		Majority: Stage(marks[len(marks)-quorum.Tally{Nodes: n}.Quorum()] >> stageBits),
		written:  time.Unix(highest&(1<<stageBits-1)*60, 0),
	}
}

// write raises the group's stage, or writes the same one anew. It returns when a majority has come
// to it, or why not.
func (of *Member) write(ctx context.Context, to Stage) error {
	if of.group.Raise(ctx, to.at(of.in.config.Wall())) == nil {
		return nil
	}
	// Others may have written it at the same time, each on some of the servers.
	switch seen := of.look(ctx); {
	case seen.Err != nil:
		return seen.Err
	case seen.Majority < to:
		return fmt.Errorf("redlock: group %q: version %d of the map: %w", of.name, to.Version(), ErrNotYet)
	}
	return nil
}

// writeFirst writes a stage on servers that have none. One that comes late changes nothing on others.
func (of *Member) writeFirst(ctx context.Context, first Stage) {
	of.group.Establish(ctx, first.at(of.in.config.Wall()))
}
