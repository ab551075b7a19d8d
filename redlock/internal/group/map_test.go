package group

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// versionsOf are those of groups a and b, and of c, which is joining or not there.
func versionsOf(t *testing.T, version int, isChanging bool) *versions {
	groups := []Group{{Name: "a"}, {Name: "b"}}
	if isChanging {
		groups = append(groups, Group{Name: "c", Joining: true})
	}
	v, err := newVersions(version, groups)
	require.NoError(t, err)
	return v
}

func at(s stage) sight                  { return sight{highest: s, majority: s, lowest: s, isWhole: true} }
func between(most, highest stage) sight { return sight{highest: highest, majority: most} }

// TestWhoMayUseTheMap: by what the groups tell of its versions.
func TestWhoMayUseTheMap(t *testing.T) {
	t.Parallel()
	away := sight{err: assert.AnError}
	for _, row := range []struct {
		what       string
		version    int
		isChanging bool
		seen       []sight
		isComplete bool
		err        error
	}{
		{"nobody was there", 2, false, []sight{at(0), at(0)}, false, nil},
		{"one group tells", 2, false, []sight{at(completed(2)), away}, true, nil},
		{"a minority tells", 2, false, []sight{between(0, completed(2)), at(0)}, false, nil},
		{"others found it", 2, false, []sight{at(founding(2)), at(0)}, false, nil},
		{"a group cannot be asked", 2, false, []sight{at(0), away}, false, assert.AnError},
		{"an older map is in use", 2, false, []sight{at(completed(1)), at(completed(1))}, false, ErrMap},
		{"it is over", 2, false, []sight{at(completed(2)), between(completed(2), retired(2))}, false, ErrMap},
		{"a newer map is complete", 2, false, []sight{at(completed(3)), at(0)}, false, ErrMap},
		{"a change to it", 2, true, []sight{at(completed(1)), at(completed(1)), at(0)}, true, nil},
		{"a change to it, complete", 2, true, []sight{at(retired(1)), away, at(completed(2))}, true, nil},
		{"a change of a map that is being founded", 2, true, []sight{at(founding(1)), at(founding(1)), away}, true, nil},
		{"the same in one group", 2, true, []sight{at(founding(1)), at(0), at(0)}, false, nil},
		{"others found the map after the change", 2, true, []sight{at(founding(2)), at(0), at(0)}, false, nil},
	} {
		isComplete, err := versionsOf(t, row.version, row.isChanging).judge(row.seen)
		assert.Equal(t, row.isComplete, isComplete, row.what)
		assert.ErrorIs(t, err, row.err, row.what)
	}
}

// TestAGroupWithoutAStageLearnsWhatIsCertain, and no more.
func TestAGroupWithoutAStageLearnsWhatIsCertain(t *testing.T) {
	t.Parallel()
	m := versionsOf(t, 2, true)
	for first, seen := range map[stage][]sight{
		founding(1):  {at(0), between(founding(1), completed(1))},
		completed(1): {at(0), at(completed(1)), {err: assert.AnError}},
		retired(1):   {at(completed(1)), at(retired(1)), at(0)},
		completed(2): {at(retired(1)), at(completed(2)), at(0)},
	} {
		assert.Equal(t, first, m.firstStage(seen), "%v", seen)
	}
}

func TestStagesAreInOrder(t *testing.T) {
	t.Parallel()
	for v := 1; v < 4; v++ {
		assert.Less(t, founding(v), completed(v))
		assert.Less(t, completed(v), retired(v))
		assert.Less(t, retired(v), founding(v+1))
		for _, s := range []stage{founding(v), completed(v), retired(v)} {
			assert.Equal(t, v, s.version())
			assert.Equal(t, s == retired(v), s.isRetired())
			for older := 1; older <= v; older++ {
				assert.Equal(t, s != founding(v), s.proves(older), "%v proves %v", s, older)
			}
			assert.False(t, s.proves(v+1))
		}
	}
}

// TestAKeyMovesToTheGroupThatJoins, or stays: and clients of both maps meet where it was.
func TestAKeyMovesToTheGroupThatJoins(t *testing.T) {
	t.Parallel()
	was, during := versionsOf(t, 1, false), versionsOf(t, 2, true)
	moved, in := 0, map[string]int{}
	const keys = 3000
	for i := range keys {
		key := fmt.Sprint("key", i)
		alone, same := Find(was.groups, key)
		assert.Equal(t, alone, same)
		before, after := Find(during.groups, key)
		assert.Equal(t, alone, before, "clients of the map before are met")
		in[during.groups[after].Name]++
		if before != after {
			assert.Equal(t, "c", during.groups[after].Name)
			moved++
		}
	}
	assert.Equal(t, in["c"], moved)
	for _, g := range during.groups {
		assert.InDelta(t, keys/3, in[g.Name], keys/20, "each has a third of the keys")
	}
}
