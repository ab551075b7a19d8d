package group

import (
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
