package group

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// Names are spread over groups, and which groups there are changes by one version of the map at a time. All here
// is pure: which groups a name is in, and what clients may do by what the servers tell of the versions.

// A Group is a set of servers that decide about its names together.
type Group struct {
	Name    string
	Nodes   []protocol.Node
	Prefix  string // before its keys, behind that of all groups
	Joining bool   // the version of the map before has no such group
	Leaving bool   // that version is the last that has it
}

// Find returns the groups that a key is in by each version of the map: before the change that is under way, and
// after it. They are the same if the change does not move the key. In each version it is the group that draws the
// highest number for the key; -1: there is no group.
func Find(groups []Group, key string) (before, after int) {
	var highest, highestAfter uint64
	before, after = -1, -1
	for i := range groups {
		g := &groups[i]
		n := hash.Mix(hash.Text(hash.Text(hash.Text(hash.Basis, g.Name), "\x00"), key))
		if !g.Joining && (before < 0 || n > highest) {
			before, highest = i, n
		}
		if !g.Leaving && (after < 0 || n > highestAfter) {
			after, highestAfter = i, n
		}
	}
	return before, after
}

// Versions of the map that a client has: one, or two while the map is being changed.
type versions struct {
	groups       []Group // of both, by name
	base, newest int
}

// newVersions returns the versions of which these are the groups, or why there are none.
func newVersions(newest int, groups []Group) (*versions, error) {
	v := &versions{groups: slices.Clone(groups), base: newest, newest: newest}
	slices.SortFunc(v.groups, func(a, b Group) int { return strings.Compare(a.Name, b.Name) })
	if slices.ContainsFunc(groups, func(g Group) bool { return g.Joining || g.Leaving }) {
		v.base--
	}
	switch before, after := Find(groups, ""); {
	case newest < 1 || newest > maxVersion:
		return nil, fmt.Errorf("redlock: version %d of the map: must be between 1 and %d", newest, maxVersion)
	case after < 0:
		return nil, errors.New("redlock: the map has no group that stays; give at least one that is not Leaving")
	case before < 0:
		return nil, errors.New("redlock: all groups are Joining: then there is no change; leave Joining out")
	case v.base == 0:
		return nil, errors.New("redlock: groups are Joining or Leaving, but the map's version is 1; give the version above that of the map before")
	}
	return v, nil
}

// check returns why groups cannot be in one map.
func check(groups []Group) error {
	names, servers := map[string]bool{}, map[string]string{}
	for i, of := range groups {
		switch {
		case of.Name == "":
			return fmt.Errorf("redlock: group %d has no name; give one that stays with its servers", i)
		case names[of.Name]:
			return fmt.Errorf("redlock: two groups are named %q", of.Name)
		case len(of.Nodes) == 0:
			return fmt.Errorf("redlock: group %q has no nodes", of.Name)
		case of.Joining && of.Leaving:
			return fmt.Errorf("redlock: group %q cannot be Joining and Leaving", of.Name)
		}
		names[of.Name] = true
		for _, n := range of.Nodes {
			server := of.Prefix + "\x00" + n.String()
			if other, twice := servers[server]; twice {
				return fmt.Errorf("redlock: groups %q and %q have the same server, %s: give one of them a Prefix of its own", other, of.Name, n)
			}
			servers[server] = of.Name
		}
	}
	return nil
}

// A stage is how far the versions of the map have come: a mark in each group, whose lower bits are the
// minute in which it was written.
type stage int64

// stageBits is the room for the minutes.
const stageBits = 32

// maxVersion bounds versions by the room that a mark has for them.
const maxVersion = 1 << 19

// founding is the stage in which version v is the first that clients have, and not in all groups yet.
func founding(v int) stage { return stage(3 * v) }

// completed is the stage in which clients may have version v alone.
func completed(v int) stage { return stage(3*v + 1) }

// retired is the stage in which no client with version v as its newest can come any more.
func retired(v int) stage { return stage(3*v + 2) }

// version is the one that the stage is of.
func (s stage) version() int { return int(s / 3) }

func (s stage) isRetired() bool  { return s > 0 && s == retired(s.version()) }
func (s stage) isFounding() bool { return s == founding(s.version()) }

// proves reports whether version v is complete where a group has come to the stage. To found a later one
// proves nothing of those before.
func (s stage) proves(v int) bool { return s >= completed(v) && !s.isFounding() }

// at is the mark for the stage, written now.
func (s stage) at(now time.Time) int64 { return int64(s)<<stageBits | now.Unix()/60 }

// VersionName is the name whose mark has the stage. It has no group's prefix, so groups that share servers meet
// there.
const VersionName = keys.Map + "version"

// presenceName is the name that clients with the version as their newest hold as readers.
func presenceName(version int) string { return keys.Map + strconv.Itoa(version) }

// A sight is what the servers of a group tell of its stage.
type sight struct {
	highest  stage
	majority stage // that most servers have come to at least
	lowest   stage // that all servers that told have come to at least
	isWhole  bool  // all have told
	written  time.Time
	err      error // too few have told, or nil
}

// judge reports whether the older of the client's versions is complete. One group that tells so is
// enough. To a client with two versions it is enough, too, that its older one is founded in all groups,
// whether or not others found the newest. It returns false and no error if there are no clients yet, but for those
// that found the older version.
func (v *versions) judge(seen []sight) (isComplete bool, err error) {
	var highest stage
	isFounded, isFirst := v.base < v.newest, true
	for i, s := range seen {
		highest = max(highest, s.highest)
		isComplete = isComplete || s.majority.proves(v.base)
		isFounded = isFounded && (s.majority >= founding(v.base) || v.groups[i].Joining)
		isFirst = isFirst && (s.highest == 0 || s.highest >= founding(v.base))
		err = cmp.Or(err, s.err)
	}
	if over := v.leftBehind(highest); over != nil {
		return false, over
	}
	switch {
	case isComplete || isFounded:
		return true, nil
	case err != nil:
		return false, err
	case !isFirst:
		return false, fmt.Errorf("redlock: %w: version %d of the groups' map is in use, and this client has version %d without it: "+
			"first give all clients both, as Joining and Leaving groups", ErrMap, highest.version(), v.base)
	}
	return false, nil
}

// firstStage is what a group gets that has no stage, where others have come to those: what they prove, so
// that clients of an older version do not begin in it. What is not certain is not made so.
func (v *versions) firstStage(seen []sight) stage {
	first := founding(v.base)
	for _, s := range seen {
		if s.majority.proves(v.base) {
			first = max(first, s.majority)
		}
	}
	return first
}

// leftBehind is the error of a client whose versions are over at a stage, or nil.
func (v *versions) leftBehind(at stage) error {
	if at < retired(v.newest) {
		return nil
	}
	return fmt.Errorf("redlock: %w: version %d of the groups' map is over, and this client has no later one: "+
		"give it the map that the other clients have", ErrMap, v.newest)
}
