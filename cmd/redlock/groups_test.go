package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func TestGroupsAreNamedInAllWays(t *testing.T) {
	want := []serverSet{{group: "a", urls: []string{"redis://1", "redis://:x,b=y@2"}}, {group: "b", urls: []string{"unix:///3"}}}
	for _, args := range [][]string{
		{"--group", "a=redis://1,redis://:x,b=y@2", "--group", "b=unix:///3"},
		{"--group", "a=redis://1, redis://:x,b=y@2 b=unix:///3,"},
		{"--group=a=redis://1,redis://:x,b=y@2,b=unix:///3"},
		{"--group=a=redis://1", "--group=redis://:x,b=y@2", "--group=b=,unix:///3"},
	} {
		s, err := settled(t, "", nil, args...)
		tr.NoError(t, err, args)
		assert.Equal(t, want, s.targets.sets, args)
	}
	s, err := settled(t, "groups:\n  - a=redis://1,redis://:x,b=y@2\n  - b=unix:///3\n", nil)
	tr.NoError(t, err)
	assert.Equal(t, want, s.targets.sets)
	s, err = settled(t, "", map[string]string{"REDLOCK_GROUPS": "a=redis://1 redis://:x,b=y@2\nb=unix:///3"})
	tr.NoError(t, err)
	assert.Equal(t, want, s.targets.sets)
}

func TestNodesOrGroupsComeFromTheBetterSource(t *testing.T) {
	const nodes, groups = "nodes: [redis://node]\n", "groups: [a=redis://file, b=redis://b]\n"
	ofGroups := map[string]string{"REDLOCK_GROUPS": "a=redis://env"}
	for _, test := range []struct {
		file string
		env  map[string]string
		args []string
		want string
	}{
		{nodes, nil, []string{"--group", "a=redis://flag"}, "[] [{a [redis://flag]}]"},
		{nodes, ofGroups, nil, "[] [{a [redis://env]}]"},
		{groups, ofGroups, nil, "[] [{a [redis://env]}]"},
		{groups, nil, nil, "[] [{a [redis://file]} {b [redis://b]}]"},
		{"", ofGroups, []string{"--group", "b=redis://flag"}, "[] [{b [redis://flag]}]"},
		{groups, nil, []string{"--node", "redis://flag"}, "[redis://flag] []"},
		{groups, map[string]string{"REDLOCK_NODES": "redis://env"}, nil, "[redis://env] []"},
		{"", ofGroups, []string{"--node", "redis://flag"}, "[redis://flag] []"},
	} {
		s, err := settled(t, test.file, test.env, test.args...)
		tr.NoError(t, err)
		var sets []string
		for _, set := range s.targets.sets {
			sets = append(sets, fmt.Sprintf("{%s %v}", set.group, set.urls))
		}
		assert.Equal(t, test.want, fmt.Sprintf("%v %v", s.targets.nodes, sets), test)
	}
}

// A groupFleet has the servers of some groups.
type groupFleet map[string]fleet.Fleet

func startGroups(t *testing.T, kind fleet.Kind, names ...string) groupFleet {
	t.Helper()
	gs := groupFleet{}
	for _, name := range names {
		gs[name] = startFleet(t, kind, 3)
	}
	return gs
}

// on adds the flags for groups to a command line, before its first argument.
func (gs groupFleet) on(line string, names ...string) []string {
	return slices.Insert(gs.guarded(line, names...), 1, "--memory-guard=false")
}

// guarded is like on, with the memory guard.
func (gs groupFleet) guarded(line string, names ...string) []string {
	args := []string{strings.Fields(line)[0], "--dial-timeout", longEnough.String(), "--node-timeout", "8s"}
	for _, name := range names {
		args = append(args, "--group", name+"="+strings.Join(gs[name].URLs(), ","))
	}
	return append(args, strings.Fields(line)[1:]...)
}

// locker is a client of the groups.
func (gs groupFleet) locker(t *testing.T, names ...string) *redlock.Locker {
	t.Helper()
	var of []redlock.Group
	for _, name := range names {
		nodes, err := pool.OpenWith(gs[name].URLs(), patient...)
		tr.NoError(t, err)
		of = append(of, redlock.Group{Name: name, Nodes: nodes})
	}
	l, err := redlock.NewGroups(of, redlock.MemoryGuard(false), redlock.NodeTimeout(longEnough), redlock.TTL(2*longEnough))
	tr.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// nameIn returns a name that is in the group a or b.
func nameIn(group string) string {
	groups := []string{"a", "b"}
	for i := 0; ; i++ {
		if name := fmt.Sprint("job-", i); groups[keys.GroupOf(groups, name)] == group {
			return name
		}
	}
}

func (gs groupFleet) holders(t *testing.T, group, key string) (n int) {
	t.Helper()
	for _, u := range gs[group].URLs() {
		if has(t, u, key) != "" {
			n++
		}
	}
	return n
}

func TestStatusNamesTheGroup(t *testing.T) {
	gs := startGroups(t, fleet.Embedded, "a", "b")
	l := gs.locker(t, "a", "b")
	inA, inB := nameIn("a"), nameIn("b")
	for _, name := range []string{inA, inB} {
		_, err := l.TryAcquire(t.Context(), name)
		tr.NoError(t, err)
	}
	out := succeeds(t, gs.on("status "+inB, "a", "b")...)
	assert.Regexp(t, `LOCK +GROUP +STATE +VOTES`, out)
	assert.Regexp(t, inB+` +b +held +[23] of 3`, out)
	assert.Equal(t, 5, strings.Count(out, "\n"), "the servers of its group: %s", out)

	out = succeeds(t, gs.on("status --json", "a", "b")...)
	var st status
	tr.NoError(t, json.Unmarshal([]byte(out), &st))
	assert.Equal(t, []groupStatus{{"a", 2, 3, 3}, {"b", 2, 3, 3}}, st.Groups)
	assert.Equal(t, 6, st.Answered)
	assert.NotContains(t, out[:60], "quorum", "each group has its own")
	groups := map[string]string{}
	for _, l := range st.Locks {
		groups[l.Name] = l.Group
	}
	assert.Equal(t, map[string]string{inA: "a", inB: "b"}, groups)
	assert.Equal(t, "b", st.Nodes[3].Group)
	assert.Contains(t, succeeds(t, gs.on("status --limit 1", "a", "b")...), "There are more keys")

	succeeds(t, gs.on("status -q "+inA+" "+inB, "a", "b")...)
	for i := range 2 {
		tr.NoError(t, gs["a"].Kill(t.Context(), i))
	}
	succeeds(t, gs.on("status -q "+inB, "a", "b")...) // does not ask the other group
	code, out, errs := redlockCommand(t, gs.on("status "+inA+" "+inB, "a", "b")...)
	assert.Equal(t, exitNoQuorum, code)
	assert.Equal(t, "redlock: no quorum in group a: 1 of 3 servers answered, and 2 are needed\n", errs)
	assert.Regexp(t, inB+` +b +held`, out, "what is known is told")
}

func TestReleaseFindsTheGroup(t *testing.T) {
	gs := startGroups(t, fleet.Embedded, "a", "b")
	inA, inB := nameIn("a"), nameIn("b")
	release := func(line string) (code int, out, errs string) {
		return redlockCommand(t, gs.on("release "+line, "a", "b")...)
	}
	for _, group := range []string{"a", "b"} {
		for _, name := range []string{inA, inB} {
			put(t, gs[group].URLs(), name, "value-in-"+group)
		}
	}
	code, out, errs := release(inA + " --force --yes")
	assert.Zero(t, code, errs)
	assert.Contains(t, out, "group a\nSERVER")
	assert.Contains(t, out, inA+", group a: deleted on 3 of 3 servers\n")
	assert.Zero(t, gs.holders(t, "a", inA))
	assert.Equal(t, 3, gs.holders(t, "b", inA), "the name is in one group")
	code, out, errs = release(inB + " --value value-in-b")
	assert.Zero(t, code, errs)
	assert.Equal(t, inB+", group b: deleted on 3 of 3 servers\n", out)
	assert.Equal(t, 3, gs.holders(t, "a", inB))
	put(t, gs["b"].URLs(), inB, "value-in-b")
	for i := range 2 {
		tr.NoError(t, gs["b"].Kill(t.Context(), i))
	}
	code, _, errs = release(inB + " --force --yes")
	assert.Equal(t, exitNoQuorum, code)
	assert.Contains(t, errs, "group b: ")
}

// diagnose runs doctor over groups.
func (gs groupFleet) diagnose(t *testing.T, args []string) (code int, e examination, text string) {
	t.Helper()
	code, out, errs := redlockCommand(t, append(args, "--json")...)
	tr.Empty(t, errs)
	tr.NoError(t, json.Unmarshal([]byte(out), &e), out)
	_, text, errs = redlockCommand(t, args...)
	tr.Empty(t, errs)
	fits(t, text)
	return code, e, strings.Join(strings.Fields(text), " ")
}

func TestDoctorExaminesGroups(t *testing.T) {
	gs := startGroups(t, fleet.Process, "a", "b")
	for _, f := range gs {
		for _, u := range f.URLs() { // locks without the memory guard need this setting
			ask(t, u, "CONFIG", "SET", "appendonly", "yes")
			ask(t, u, "CONFIG", "SET", "appendfsync", "always")
		}
	}
	code, e, text := gs.diagnose(t, gs.on("doctor", "a", "b"))
	assert.Zero(t, code, text)
	tr.Len(t, e.Groups, 2)
	assert.Equal(t, "b", e.Groups[1].Group)
	assert.Contains(t, text, "Group a 127.")
	assert.Equal(t, 2, strings.Count(text, "3 of 3 servers answered, 2 are needed"), text)
	for i := range 2 {
		tr.NoError(t, gs["b"].Kill(t.Context(), i))
	}
	code, _, text = gs.diagnose(t, gs.on("doctor", "a", "b"))
	assert.Equal(t, exitNoQuorum, code)
	assert.Contains(t, text, "1 of 3 servers answered, 2 are needed: not fit")
}

// TestResetChangesTheGroups: clients and doctor refuse servers that other clients use with other
// groups. After a reset the servers of all groups belong to the new groups.
func TestResetChangesTheGroups(t *testing.T) {
	gs := startGroups(t, fleet.Embedded, "a", "b")
	inA := nameIn("a")
	run := func(want int, names ...string) (errs string) {
		t.Helper()
		code, _, errs := redlockCommand(t, gs.guarded("run --no-wait "+inA+" -- true", names...)...)
		assert.Equal(t, want, code, errs)
		return errs
	}
	reset := func(names ...string) string { return succeeds(t, gs.guarded("reset --yes", names...)...) }
	out := reset("a")
	assert.Contains(t, out, "Group a\n3 of 3 servers have a new record, and vote\n")
	run(0, "a")
	errs := run(exitConfig, "a", "b")
	assert.Contains(t, errs, "other clients use other servers or groups")
	assert.Contains(t, errs, "redlock reset")
	assert.Equal(t, 1, strings.Count(errs, "\n"))
	code, _, text := gs.diagnose(t, gs.guarded("doctor", "a", "b"))
	assert.Equal(t, exitDoctorFatal, code)
	assert.Contains(t, text, "its clients use other groups or servers")
	code, _, errs = redlockCommand(t, append([]string{"run", "--node", strings.Join(gs["a"].URLs(), ",")}, strings.Fields("--node-timeout 8s --dial-timeout 8s --no-wait x -- true")...)...)
	assert.Equal(t, exitConfig, code, errs)

	out = reset("b", "a")
	assert.Contains(t, out, "Group b\n3 of 3 servers have a new record, and vote\nGroup a\n3 of 3")
	run(0, "a", "b")
	run(0, "b", "a")
	run(exitConfig, "a")
	out = succeeds(t, gs.guarded("reset --yes --json", "a", "b")...)
	var all struct{ Groups []setReset }
	tr.NoError(t, json.Unmarshal([]byte(out), &all))
	tr.Len(t, all.Groups, 2)
	assert.Equal(t, "b", all.Groups[1].Group)
	assert.Len(t, all.Groups[1].Nodes, 3)
	for i := range 2 {
		tr.NoError(t, gs["b"].Kill(t.Context(), i))
	}
	code, _, errs = redlockCommand(t, gs.guarded("reset --yes", "a", "b")...)
	assert.Equal(t, exitNoQuorum, code)
	assert.Contains(t, errs, "group b: no quorum: 1 of 3 servers answered")
	assert.Contains(t, errs, "nothing was changed")
}
