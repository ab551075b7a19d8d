package doctor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// TestWhereAChangeOfTheMapStands: what the servers of groups a and b tell, of which b may be
// joining or leaving, and what that means for the step that was given.
func TestWhereAChangeOfTheMapStands(t *testing.T) {
	t.Parallel()
	none, v1, over, v2, silent := redlock.GroupState{}, redlock.GroupState{Version: 1}, redlock.GroupState{Version: 1, Retired: true},
		redlock.GroupState{Version: 2}, redlock.GroupState{Err: errors.New("no quorum")}
	v3 := redlock.GroupState{Version: 3}
	const alone, joins, leaves = "", "joins", "leaves"
	for _, c := range []struct {
		name     string
		version  int
		change   string
		a, b     redlock.GroupState
		complete bool
		worst    Severity
		found    string
		do       string
	}{
		{"no client", 1, alone, none, none, false, Note, "no client has used the map yet", ""},
		{"the first client", 1, alone, v1, none, false, Note, "the first client begins with version 1", ""},
		{"in use", 1, alone, v1, v1, true, OK, "version 1 of the map is in use, and complete", ""},
		{"in use, and a group is silent", 1, alone, v1, silent, true, Warning, "the servers of group b do not tell the version of the map: no quorum", "see above"},
		{"the one that may know is silent", 1, alone, none, silent, false, Warning, "cannot be told without group b", "bring the servers"},
		{"a change has begun", 1, alone, v1, over, true, Fatal, "version 1 of the map is over", "a later one"},
		{"a change is over", 1, alone, v2, v1, true, Fatal, "version 1 of the map is over", "a later one"},
		{"a step was left out", 2, alone, v1, v1, false, Fatal, "version 1 of the map is in use, and not version 2", "first give all clients versions 1 and 2"},
		{"two steps were left out", 3, joins, v1, none, false, Fatal, "version 1 of the map is in use, and not version 2", "first give all clients versions 1 and 2"},
		{"a group joins", 2, joins, v1, none, false, Warning, "clients may be left that have version 1 alone, in group a", "when all have it"},
		{"a group leaves", 2, leaves, over, v1, false, Warning, "clients may be left that have version 1 alone, in group b", "when all have it"},
		{"nothing is in the way", 2, joins, over, v1, false, Warning, "is about to be complete", "wait"},
		{"one that was there is silent", 2, leaves, over, silent, false, Warning, "as far as is known without group b", "bring the servers"},
		{"a change without clients", 2, joins, none, none, false, Note, "no client has used the map yet", ""},
		{"complete with a new group", 2, joins, v2, v1, true, Note, "the change to version 2 of the map is complete", "without --joining"},
		{"complete without an old one", 2, leaves, v2, over, true, Note, "the change to version 2 of the map is complete", "without group b; when all have it, end the servers"},
		{"far behind", 2, joins, v3, v3, true, Fatal, "version 2 of the map is over", "a later one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.a.Name, c.b.Name = "a", "b"
			m := redlock.Map{Version: c.version, Groups: []redlock.Group{{Name: "a"}, {Name: "b", Joining: c.change == joins, Leaving: c.change == leaves}}}
			r := ExamineMap(&redlock.MapState{
				Version: c.version, Changing: c.change != alone, Complete: c.complete, Groups: []redlock.GroupState{c.a, c.b},
			}, m)
			explained(t, r.Findings)
			assert.Equal(t, c.worst, r.Worst())
			var told *Finding
			for i, f := range r.Findings {
				if f.Severity == c.worst && (told == nil || c.b.Err != nil && c.do != "see above") {
					told = &r.Findings[i]
				}
			}
			require.NotNil(t, told)
			assert.Contains(t, told.Found, c.found)
			assert.Contains(t, told.Do, c.do)
			if c.change != alone && !c.complete && c.worst == Warning {
				assert.Contains(t, told.Means, "not safe yet")
			}
			assert.Equal(t, []bool{c.change == joins, c.change == leaves}, []bool{r.Groups[1].Joining, r.Groups[1].Leaving})
		})
	}
}
