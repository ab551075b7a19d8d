package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/doctor"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
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
		assert.Equal(t, want, s.sets, args)
	}
	s, err := settled(t, "groups:\n  - a=redis://1,redis://:x,b=y@2\n  - b=unix:///3\n", nil)
	tr.NoError(t, err)
	assert.Equal(t, want, s.sets)
	s, err = settled(t, "", map[string]string{"REDLOCK_GROUPS": "a=redis://1 redis://:x,b=y@2\nb=unix:///3"})
	tr.NoError(t, err)
	assert.Equal(t, want, s.sets)
	assert.Equal(t, 1, s.mapVersion)

	s, err = settled(t, "groups: [a=redis://1, b=redis://2, c=redis://3, d=redis://4]\nmap_version: 7\njoining: [c, d]\nleaving: a\n", map[string]string{"REDLOCK_PASSWORD": "secret"})
	tr.NoError(t, err)
	sets := s.all()
	assert.Equal(t, []serverSet{
		{group: "a", urls: []string{"redis://1"}, leaving: true}, {group: "b", urls: []string{"redis://2"}},
		{group: "c", urls: []string{"redis://3"}, joining: true}, {group: "d", urls: []string{"redis://4"}, joining: true},
	}, sets)
	assert.Equal(t, 7, s.mapVersion)
	assert.True(t, s.login.areSet())
}

// TestNodesOrGroupsComeFromTheBetterSource, and with groups what is said of their map there.
func TestNodesOrGroupsComeFromTheBetterSource(t *testing.T) {
	const nodes, groups = "nodes: [redis://node]\n", "groups: [a=redis://file, b=redis://b]\nmap_version: 3\njoining: [b]\ngroup_prefixes: [b=b:]\n"
	ofGroups := map[string]string{"REDLOCK_GROUPS": "a=redis://env"}
	for _, test := range []struct {
		file string
		env  map[string]string
		args []string
		want string
	}{
		{nodes, nil, []string{"--group", "a=redis://flag"}, "1 [] [{a [redis://flag] false false}]"},
		{nodes, ofGroups, nil, "1 [] [{a [redis://env] false false}]"},
		{groups, ofGroups, nil, "1 [] [{a [redis://env] false false}]"},
		{groups, ofGroups, []string{"--map-version", "4"}, "4 [] [{a [redis://env] false false}]"},
		{groups, map[string]string{"REDLOCK_MAP_VERSION": "4"}, nil, "4 [] [{a [redis://file] false false} {b [redis://b] true false b:}]"},
		{groups, map[string]string{"REDLOCK_GROUP_PREFIXES": "a=x=,b="}, nil, "3 [] [{a [redis://file] false false x=} {b [redis://b] true false}]"},
		{groups, nil, []string{"--group-prefix", "a=a:", "--group-prefix", "b=c:"}, "3 [] [{a [redis://file] false false a:} {b [redis://b] true false c:}]"},
		{"", map[string]string{"REDLOCK_GROUPS": "a=redis://env", "REDLOCK_GROUP_PREFIXES": "a=a:"}, []string{"--group", "b=redis://flag"}, "1 [] [{b [redis://flag] false false}]"},
		{groups, nil, []string{"--node", "redis://flag"}, "1 [redis://flag] []"},
		{groups, map[string]string{"REDLOCK_NODES": "redis://env"}, nil, "1 [redis://env] []"},
		{"", ofGroups, []string{"--node", "redis://flag"}, "1 [redis://flag] []"},
	} {
		s, err := settled(t, test.file, test.env, test.args...)
		tr.NoError(t, err)
		assert.Equal(t, test.want, fmt.Sprintf("%d %v %s", s.mapVersion, s.nodes, sets(s.sets)), test)
	}
}

// sets prints serverSets with all their fields.
func sets(all []serverSet) string {
	var texts []string
	for _, s := range all {
		text := fmt.Sprintf("{%s %v %v %v", s.group, s.urls, s.joining, s.leaving)
		if s.prefix != "" {
			text += " " + s.prefix
		}
		texts = append(texts, text+"}")
	}
	return "[" + strings.Join(texts, " ") + "]"
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
	args := []string{strings.Fields(line)[0], "--memory-guard=false", "--dial-timeout", longEnough.String(), "--node-timeout", "4s"}
	for _, name := range names {
		args = append(args, "--group", name+"="+strings.Join(gs[name].URLs(), ","))
	}
	return append(args, strings.Fields(line)[1:]...)
}

// locker is a client with the map of a version, of which it gets the flags.
func (gs groupFleet) locker(t *testing.T, flags string, names ...string) *redlock.Locker {
	t.Helper()
	l, _ := lockerOf(t, gs.on("x "+flags, names...)[1:])
	return l
}

// lockerOf is a client with the map of the flags.
func lockerOf(t *testing.T, flags []string) (*redlock.Locker, []serverSet) {
	t.Helper()
	s, err := settled(t, "", nil, flags...)
	tr.NoError(t, err)
	sets := s.all()
	var nodes [][]protocol.Node
	for _, set := range sets {
		of, err := pool.OpenWith(set.urls, patient...)
		tr.NoError(t, err)
		nodes = append(nodes, of)
	}
	l, err := redlock.NewGroups(s.groupMap(sets, nodes), redlock.Prefix(s.prefix), redlock.MemoryGuard(false), redlock.NodeTimeout(longEnough), redlock.TTL(2*longEnough))
	tr.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l, sets
}

// nameIn returns a name that l has in the group.
func nameIn(l *redlock.Locker, group string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("job-", i); l.GroupOf(name) == group {
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

func TestStatusTellsTheGroup(t *testing.T) {
	gs := startGroups(t, fleet.Embedded, "a", "b")
	l := gs.locker(t, "", "a", "b")
	inA, inB := nameIn(l, "a"), nameIn(l, "b")
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
	succeeds(t, gs.on("status -q "+inB, "a", "b")...) // which does not ask the other group
	code, out, errs := redlockCommand(t, gs.on("status "+inA+" "+inB, "a", "b")...)
	assert.Equal(t, exitNoQuorum, code)
	assert.Equal(t, "redlock: no quorum in group a: 1 of 3 servers answered, and 2 are needed\n", errs)
	assert.Regexp(t, inB+` +b +held`, out, "what is known is told")
}

// TestReleaseFindsTheGroup, and in a change of the map that moves a name both groups, in which it
// has a value each.
func TestReleaseFindsTheGroup(t *testing.T) {
	gs := startGroups(t, fleet.Embedded, "a", "b")
	const change = "--map-version 2 --joining b "
	l := gs.locker(t, change, "a", "b")
	stays, moves := nameIn(l, "a"), nameIn(l, "b")
	release := func(line string) (code int, out, errs string) {
		return redlockCommand(t, gs.on("release "+change+line, "a", "b")...)
	}
	values := func() (a, b string) { return has(t, gs["a"].URLs()[0], moves), has(t, gs["b"].URLs()[0], moves) }
	for _, group := range []string{"a", "b"} {
		put(t, gs[group].URLs(), moves, "value-in-"+group)
	}
	put(t, gs["a"].URLs(), stays, "value")
	put(t, gs["b"].URLs(), stays, "of another")

	code, out, errs := release(stays + " --force --yes")
	assert.Zero(t, code, errs)
	assert.Contains(t, out, "group a\nSERVER")
	assert.Contains(t, out, stays+", group a: deleted on 3 of 3 servers\n")
	assert.Zero(t, gs.holders(t, "a", stays))
	assert.Equal(t, 3, gs.holders(t, "b", stays), "the map has it in one group")

	code, out, errs = release(moves + " --value value-in-b")
	assert.Zero(t, code, errs)
	assert.Equal(t, moves+", group b, joining: deleted on 3 of 3 servers\n", out)
	a, b := values()
	assert.Equal(t, "value-in-a", a)
	assert.Empty(t, b)
	code, _, _ = redlockCommand(t, gs.on("status -q "+change+moves, "a", "b")...)
	assert.Zero(t, code, "it is held in one")
	code, out, errs = release(moves + " --force --yes")
	assert.Zero(t, code, errs)
	assert.Contains(t, out, moves+", group a: deleted on 3 of 3 servers\n")
	a, b = values()
	assert.Empty(t, a+b)
	for _, group := range []string{"a", "b"} {
		put(t, gs[group].URLs(), moves, "value-in-"+group)
	}
	code, out, errs = release(moves + " --force")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "give --yes")
	assert.Equal(t, 1, strings.Count(out, "SERVER"), "one answer is for all")
	for i := range 2 {
		tr.NoError(t, gs["a"].Kill(t.Context(), i))
	}
	code, _, errs = release(moves + " --force --yes")
	assert.Equal(t, exitNoQuorum, code)
	assert.Contains(t, errs, "group a: ")
	assert.Zero(t, gs.holders(t, "b", moves), "what could be deleted is")
}

// diagnose runs doctor over groups.
func (gs groupFleet) diagnose(t *testing.T, flags string, names ...string) (code int, e examination, text string) {
	t.Helper()
	code, out, errs := redlockCommand(t, gs.on("doctor --json "+flags, names...)...)
	tr.Empty(t, errs)
	tr.NoError(t, json.Unmarshal([]byte(out), &e), out)
	_, text, errs = redlockCommand(t, gs.on("doctor "+flags, names...)...)
	tr.Empty(t, errs)
	fits(t, text)
	return code, e, strings.Join(strings.Fields(text), " ")
}

func TestDoctorExaminesGroups(t *testing.T) {
	gs := startGroups(t, fleet.Process, "a", "b", "c")
	for _, f := range gs {
		for _, u := range f.URLs() { // as locks without the memory guard need it
			ask(t, u, "CONFIG", "SET", "appendonly", "yes")
			ask(t, u, "CONFIG", "SET", "appendfsync", "always")
		}
	}
	old := gs.locker(t, "", "a", "b")
	for _, group := range []string{"a", "b"} {
		_, err := old.TryAcquire(t.Context(), nameIn(old, group))
		tr.NoError(t, err)
	}
	code, e, text := gs.diagnose(t, "", "a", "b")
	assert.Zero(t, code, text)
	assert.True(t, e.Map.Complete)
	assert.Equal(t, []doctor.MapGroup{{Group: "a", Version: 1}, {Group: "b", Version: 1}}, e.Map.Groups)
	tr.Len(t, e.Groups, 2)
	assert.Contains(t, text, "Group a 127.")
	assert.Equal(t, 2, strings.Count(text, "3 of 3 servers answered, 2 are needed"), text)

	const change = "--map-version 2 --joining c"
	code, e, text = gs.diagnose(t, change, "a", "b", "c")
	assert.Equal(t, exitDoctorWarning, code)
	assert.True(t, e.Map.Changing)
	assert.Contains(t, text, "Group c, joining")
	assert.Contains(t, text, "clients may be left that have version 1 alone, in group a, b")

	code, _, text = gs.diagnose(t, "--map-version 2", "a", "b", "c")
	assert.Equal(t, exitDoctorFatal, code)
	assert.Contains(t, text, "version 1 of the map is in use, and not version 2")

	for i := range 2 {
		tr.NoError(t, gs["b"].Kill(t.Context(), i))
	}
	code, _, text = gs.diagnose(t, change, "a", "b", "c")
	assert.Equal(t, exitNoQuorum, code)
	assert.Contains(t, text, "1 of 3 servers answered, 2 are needed: not fit")
}

// replacing returns the flags, for a command line, of a map with two of three servers in group b as
// in group a.
func replacing(f fleet.Fleet) string {
	urls := f.URLs()
	return "--memory-guard=false --dial-timeout " + longEnough.String() + " --node-timeout 4s --prefix x: --map-version 2 --leaving a --joining b --group-prefix b=b: " +
		"--group a=" + strings.Join(urls[:3], ",") + " --group b=" + strings.Join(append(urls[:2:2], urls[3]), ",") + " "
}

// TestGroupsThatShareServersHaveKeysOfTheirOwn, and the commands tell them apart.
func TestGroupsThatShareServersHaveKeysOfTheirOwn(t *testing.T) {
	onKinds(t, 4, func(t *testing.T, f fleet.Fleet) {
		flags := replacing(f)
		l, sets := lockerOf(t, strings.Fields(flags))
		lock, err := l.TryAcquire(t.Context(), "job")
		tr.NoError(t, err)
		redlocks := func(line string) (code int, out, errs string) {
			command, rest, _ := strings.Cut(line, " ")
			return redlockCommand(t, strings.Fields(command+" "+flags+rest)...)
		}
		for _, line := range []string{"status", "status job"} {
			code, out, errs := redlocks(line)
			assert.Zero(t, code, errs)
			assert.Regexp(t, `(?m)^job +a +held +[23] of 3`, out)
			assert.Regexp(t, `(?m)^job +b +held +[23] of 3`, out)
			assert.Equal(t, 2, strings.Count(out, "job "), "neither keys of the other group, nor of the map: %s", out)
			assert.NotContains(t, out, "redlock:")
			assert.NotContains(t, out, "b:job")
		}
		put(t, f.URLs()[2:3], "x:b:own", "value")
		_, out, _ := redlocks("status")
		assert.Regexp(t, `(?m)^b:own +a +partial`, out, "group b is not on this server")

		// A holder that lives would release its lock in group b as soon as group a has lost it.
		tr.NoError(t, lock.Release(t.Context()))
		put(t, sets[0].urls, "x:job", "of a dead holder")
		put(t, sets[1].urls, "x:b:job", "of a dead holder")
		code, out, errs := redlocks("release job --force --yes")
		assert.Zero(t, code, errs)
		assert.Contains(t, out, "job, group a, leaving: deleted on 3 of 3 servers")
		assert.Contains(t, out, "job, group b, joining: deleted on 3 of 3 servers")
		for _, u := range f.URLs() {
			assert.Empty(t, has(t, u, "x:job")+has(t, u, "x:b:job"))
		}
		code, _, errs = redlocks("status ock:epoch --group-prefix a=x:redl")
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, errs, "a key of redlock's own, not a lock")

		ask(t, f.URLs()[0], "SET", "redlock:permit:1:{x:b:job}", "value")
		_, out, _ = redlocks("status job --permits 2")
		assert.Contains(t, out, "\n  redlock release job --value value\n")
		code, out, errs = redlocks("release job --value value")
		assert.Zero(t, code, errs)
		assert.Equal(t, "job, permit 1, group b, joining: deleted on 1 of 3 servers\n", out)
		assert.Empty(t, has(t, f.URLs()[0], "redlock:permit:1:{x:b:job}"))
	})
}
