package membership

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mapOf returns a map of groups a and b, and of c, which is joining or not there.
func mapOf(t *testing.T, version int, isChanging bool) *Map {
	members := []*Member{NewMember("a", nil, false, false), NewMember("b", nil, false, false)}
	if isChanging {
		members = append(members, NewMember("c", nil, true, false))
	}
	m, err := New(Config{Version: version}, members)
	require.NoError(t, err)
	return m
}

func at(s Stage) Sight                  { return Sight{Highest: s, Majority: s, lowest: s, whole: true} }
func between(most, highest Stage) Sight { return Sight{Highest: highest, Majority: most} }

// TestWhoMayUseTheMap: by what the groups tell of its versions.
func TestWhoMayUseTheMap(t *testing.T) {
	t.Parallel()
	away := Sight{Err: assert.AnError}
	for _, row := range []struct {
		what       string
		version    int
		isChanging bool
		seen       []Sight
		isComplete bool
		err        error
	}{
		{"nobody was there", 2, false, []Sight{at(0), at(0)}, false, nil},
		{"one group tells", 2, false, []Sight{at(completed(2)), away}, true, nil},
		{"a minority tells", 2, false, []Sight{between(0, completed(2)), at(0)}, false, nil},
		{"others found it", 2, false, []Sight{at(founding(2)), at(0)}, false, nil},
		{"a group cannot be asked", 2, false, []Sight{at(0), away}, false, assert.AnError},
		{"an older map is in use", 2, false, []Sight{at(completed(1)), at(completed(1))}, false, ErrMap},
		{"it is over", 2, false, []Sight{at(completed(2)), between(completed(2), retired(2))}, false, ErrMap},
		{"a newer map is complete", 2, false, []Sight{at(completed(3)), at(0)}, false, ErrMap},
		{"a change to it", 2, true, []Sight{at(completed(1)), at(completed(1)), at(0)}, true, nil},
		{"a change to it, complete", 2, true, []Sight{at(retired(1)), away, at(completed(2))}, true, nil},
		{"a change of a map that is being founded", 2, true, []Sight{at(founding(1)), at(founding(1)), away}, true, nil},
		{"the same in one group", 2, true, []Sight{at(founding(1)), at(0), at(0)}, false, nil},
		{"others found the map after the change", 2, true, []Sight{at(founding(2)), at(0), at(0)}, false, nil},
	} {
		isComplete, err := mapOf(t, row.version, row.isChanging).judge(row.seen)
		assert.Equal(t, row.isComplete, isComplete, row.what)
		assert.ErrorIs(t, err, row.err, row.what)
	}
}

// TestAGroupWithoutAStageLearnsWhatIsCertain, and no more.
func TestAGroupWithoutAStageLearnsWhatIsCertain(t *testing.T) {
	t.Parallel()
	m := mapOf(t, 2, true)
	for first, seen := range map[Stage][]Sight{
		founding(1):  {at(0), between(founding(1), completed(1))},
		completed(1): {at(0), at(completed(1)), {Err: assert.AnError}},
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
		for _, s := range []Stage{founding(v), completed(v), retired(v)} {
			assert.Equal(t, v, s.Version())
			assert.Equal(t, s == retired(v), s.IsRetired())
			for older := 1; older <= v; older++ {
				assert.Equal(t, s != founding(v), s.Proves(older), "%v proves %v", s, older)
			}
			assert.False(t, s.Proves(v+1))
		}
	}
}

// TestAKeyMovesToTheGroupThatJoins, or stays: and clients of both maps meet where it was.
func TestAKeyMovesToTheGroupThatJoins(t *testing.T) {
	t.Parallel()
	before, during := mapOf(t, 1, false), mapOf(t, 2, true)
	moved := 0
	const keys = 3000
	for i := range keys {
		key := fmt.Sprint("key", i)
		was, places := before.Places(key), during.Places(key)
		require.Len(t, was, 1)
		names := []string{places[0].Name(), places[len(places)-1].Name()}
		assert.Contains(t, names, was[0].Name(), "clients of the map before are met")
		assert.Contains(t, names, during.Newest(key).Name(), "and those of the map after")
		if len(places) == 2 {
			assert.Equal(t, "c", during.Newest(key).Name())
			moved++
		}
	}
	assert.InDelta(t, keys/3, moved, keys/20, "a third of the keys moves")
}
