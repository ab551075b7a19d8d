package keys_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/keys"
)

// TestGroupsAreStable: processes of other versions must find the same group for a key, and write
// the same hash.
func TestGroupsAreStable(t *testing.T) {
	t.Parallel()
	names := []string{"b", "c", "a"}
	var of []string
	for i := range 8 {
		of = append(of, names[keys.GroupOf(names, fmt.Sprint("job-", i))])
	}
	assert.Equal(t, []string{"a", "b", "b", "b", "a", "b", "b", "c"}, of)
	assert.Equal(t, "1d3a24ba6ac81184bf2a", keys.Groups{"a": {"10.0.0.1:6379", "10.0.0.2:6379"}, "b": {"10.0.0.3:6379"}}.Hash("a"))
}

// TestNewGroupTakesItsShare: the group takes keys from all others, for any order of the groups, and
// no other key moves.
func TestNewGroupTakesItsShare(t *testing.T) {
	t.Parallel()
	const n = 3000
	before, after := []string{"a", "b"}, []string{"c", "b", "a"}
	in, moved := map[string]int{}, map[string]int{}
	for i := range n {
		key := fmt.Sprint("app:job-", i)
		was, is := before[keys.GroupOf(before, key)], after[keys.GroupOf(after, key)]
		in[is]++
		if was != is {
			assert.Equal(t, "c", is, key)
			moved[was]++
		}
	}
	for _, name := range after {
		assert.InDelta(t, n/3, in[name], n/20, name)
	}
	for _, name := range before {
		assert.InDelta(t, n/6, moved[name], n/20, name)
	}
}

// TestHashesDiffer: they differ for each change of a name of a group or server, but not for another
// order.
func TestHashesDiffer(t *testing.T) {
	t.Parallel()
	m := keys.Groups{"a": {"x", "y"}, "b": {"z"}}
	assert.Equal(t, m.Hash("a"), keys.Groups{"b": {"z"}, "a": {"y", "x"}}.Hash("a"))
	assert.Equal(t, m.Hash("a"), keys.Groups{"a": {"x+s1+s2", "y"}, "b": {"z"}}.Hash("a"), "standbys")
	seen := map[string]bool{m.Hash("a"): true}
	for _, other := range []string{
		m.Hash("b"),
		keys.Groups{"a": {"x", "y"}}.Hash("a"),
		keys.Groups{"a": {"x"}, "b": {"y", "z"}}.Hash("a"),
		keys.Groups{"a": {"x", "v"}, "b": {"z"}}.Hash("a"),
		keys.Groups{"a": {"x+s1/2", "y"}, "b": {"z"}}.Hash("a"), // another database
		keys.Groups{"a": {"x y"}, "b": {"z"}}.Hash("a"),
		keys.Groups{"a": {"x", "y"}, "c": {"z"}}.Hash("a"),
		keys.Groups{"a": {"x", "y"}, "b": {"z"}, "c": {"v"}}.Hash("a"),
	} {
		assert.False(t, seen[other], other)
		seen[other] = true
	}
}
