package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := parse(args)
	require.NoError(t, err)
	return o
}

func names(o *options) (names []string) {
	for _, s := range o.specs {
		names = append(names, s.Name)
	}
	return names
}

func TestFlagsGoOverTheScenarioAndThatOverDefaults(t *testing.T) {
	t.Parallel()
	file := written(t, "# What it shows.\nsubjects bsm,limit\ncallers 7\nduration 3s\nnodes process\n")
	o := parsed(t, "--scenario", file, "--duration", "5s", "--nodes=embedded")
	assert.Equal(t, []string{"bsm", "limit"}, names(o), "the scenario's")
	assert.Equal(t, 7, o.load.Callers, "the scenario's")
	assert.Equal(t, 5*time.Second, o.load.Duration, "the command line's")
	assert.Equal(t, fleet.Embedded, o.kind, "the command line's")
	assert.Equal(t, 3, o.rounds, "the default")
	assert.Equal(t, file, o.scenario)
	assert.Equal(t, "What it shows.", o.about)
}

func TestWithoutFlagsItIsTheFirstLook(t *testing.T) {
	t.Parallel()
	o := parsed(t)
	assert.Equal(t, "quick", o.scenario)
	assert.Equal(t, fleet.Embedded, o.kind)
	assert.Equal(t, "redquorum", names(o)[0])
	assert.Equal(t, []record.Load{{
		Nodes: 5, Processes: 1, Callers: 64, Names: "own", TTL: 2 * time.Second,
		Duration: time.Second, Warmup: 200 * time.Millisecond,
	}}, o.points())
}

func TestASweepIsSeveralLoads(t *testing.T) {
	t.Parallel()
	type point struct {
		name                              string
		callers, processes, nodes, length int
	}
	for text, want := range map[string][]point{
		"":                              {{"", 8, 4, 5, 0}},
		"callers=2,16":                  {{"callers=2", 2, 2, 5, 0}, {"callers=16", 16, 4, 5, 0}},
		"nodes=1,3":                     {{"nodes=1", 8, 4, 1, 0}, {"nodes=3", 8, 4, 3, 0}},
		"processes=1,8":                 {{"processes=1", 8, 1, 5, 0}, {"processes=8", 8, 8, 5, 0}},
		"length=16,1024":                {{"length=16", 8, 4, 5, 16}, {"length=1024", 8, 4, 5, 1024}},
		"nodes=3; callers=2; length=64": {{"nodes=3", 8, 4, 3, 0}, {"callers=2", 2, 2, 5, 0}, {"length=64", 8, 4, 5, 64}},
	} {
		args := []string{"--subjects", "redquorum", "--callers", "8", "--processes", "4"}
		if text != "" {
			for one := range strings.SplitSeq(text, "; ") {
				args = append(args, "--sweep", one)
			}
		}
		o := parsed(t, args...)
		assert.Equal(t, text, o.sweeps.String())
		var got []point
		for _, l := range o.points() {
			got = append(got, point{l.Point, l.Callers, l.Processes, l.Nodes, l.Length})
		}
		assert.Equal(t, want, got)
	}
	file := written(t, "sweep nodes=1,3\nsweep callers=1,4\n")
	assert.Equal(t, "nodes=1,3; callers=1,4", parsed(t, "--scenario", file).sweeps.String())
	assert.Equal(t, "length=16", parsed(t, "--scenario", file, "--sweep", "length=16").sweeps.String(), "and none of the scenario's")
}

func TestGivenServersAreTheNodes(t *testing.T) {
	t.Parallel()
	o := parsed(t, "--nodes", "redis://a:1,redis://b:2,unix:///c", "--n", "7")
	assert.Equal(t, fleet.Addrs, o.kind)
	assert.Equal(t, 3, o.load.Nodes)
	assert.Equal(t, []string{"redis://a:1", "redis://b:2", "unix:///c"}, o.urls())
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--bogus"}, []string{"-bogus", "--help"}},
		{[]string{"--callers", "many"}, []string{"many", "-callers"}},
		{[]string{"kill", "2"}, []string{"no arguments", "kill 2"}},
		{[]string{"--scenario", "nothing"}, []string{`"nothing"`, "smoke", "quick"}},
		{[]string{"--subjects", "redlock"}, []string{"--subjects", `"redlock"`, "redquorum, ", "rueidislock"}},
		{[]string{"--subjects", ""}, []string{"--subjects", "redquorum, "}},
		{[]string{"--subjects", "bsm,redsync,bsm"}, []string{"--subjects", "bsm is there twice"}},
		{[]string{"--rounds", "0"}, []string{"--rounds"}},
		{[]string{"--duration", "0s"}, []string{"--duration"}},
		{[]string{"--warmup", "-1s"}, []string{"--warmup"}},
		{[]string{"--n", "0"}, []string{"--n "}},
		{[]string{"--callers", "3", "--processes", "4"}, []string{"--callers 3", "--processes 4"}},
		{[]string{"--processes", "0"}, []string{"--processes 0"}},
		{[]string{"--rate", "-1"}, []string{"--rate"}},
		{[]string{"--rate", "NaN"}, []string{"--rate"}},
		{[]string{"--rate", "Inf"}, []string{"--rate"}},
		{[]string{"--hold", "-1s"}, []string{"--hold"}},
		{[]string{"--patience", "-1s"}, []string{"--patience"}},
		{[]string{"--held", "-1"}, []string{"--held"}},
		{[]string{"--ttl", "9ms"}, []string{"--ttl 9ms", "at least 10ms"}},
		{[]string{"--names", "some"}, []string{"--names", `"some"`, "one for all"}},
		{[]string{"--fault", "kill 2"}, []string{"--fault", "kill 2", "such as: kill 2 at 5s for 5s"}},
		{[]string{"--fault", "kill 6 at 100ms for 100ms"}, []string{"--fault", "5 nodes"}},
		{[]string{"--fault", "kill 1 at 1s for 1h"}, []string{"--fault", "would not end"}},
		{[]string{"--sweep", "nodes=5,1", "--fault", "kill 2 at 100ms for 100ms"}, []string{"--fault", "1 nodes"}},
		{[]string{"--sweep", "ttl=1,2"}, []string{`"ttl=1,2"`, "callers, nodes, ", "length"}},
		{[]string{"--sweep", "callers"}, []string{`"callers"`, "numbers"}},
		{[]string{"--sweep", "callers=1,x"}, []string{`"x"`, "number above zero"}},
		{[]string{"--sweep", "callers=1,,2"}, []string{`""`, "number above zero"}},
		{[]string{"--sweep", "length=3"}, []string{"16 to 65536"}},
		{[]string{"--length", "3"}, []string{"--length", "16 to 65536"}},
		{[]string{"--sweep", "processes=1,65"}, []string{"--processes 65", "--callers 64"}},
		{[]string{"--sweep", "nodes=3", "--sweep", "nodes=5"}, []string{"a sweep of nodes already"}},
		{[]string{"--subjects", "limit", "--length", "64"}, []string{"limit", "--length"}},
		{[]string{"--sweep", "callers=0"}, []string{`"0"`, "number above zero"}},
		{[]string{"--sweep", "callers=4x"}, []string{`"4x"`, "number above zero"}},
		{[]string{"--nodes", "cluster"}, []string{"--nodes cluster", "embedded, process, docker", "redis://"}},
		{[]string{"--nodes", "addrs"}, []string{"--nodes addrs", "redis://"}},
		{[]string{"--nodes", "redis://a", "--durable"}, []string{"--durable", "URLs"}},
		{[]string{"--nodes", "redis://a", "--fault", "kill 1 at 100ms for 100ms"}, []string{"--fault", "URLs"}},
		{[]string{"--nodes", "redis://a", "--sweep", "nodes=1"}, []string{"--sweep nodes", "URLs"}},
		{[]string{"--durable"}, []string{"--durable", "process and docker"}},
		{[]string{"--held", "10"}, []string{"redsync does not renew", "--subjects"}},
		{[]string{"--subjects", "redquorum", "--held", "10", "--rate", "5"}, []string{"--held", "--rate"}},
		{[]string{"--subjects", "redquorum", "--held", "10", "--hold", "5ms"}, []string{"--held", "--hold"}},
		{[]string{"--subjects", "limit", "--fault", "kill 1 at 100ms for 100ms"}, []string{"limit", "faults", "--subjects"}},
		{[]string{"--subjects", "limit", "--names", "single"}, []string{"limit", "shared names"}},
		{[]string{"--subjects", "limit", "--rate", "5"}, []string{"limit", "--rate"}},
		{[]string{"--subjects", "limit", "--hold", "5ms"}, []string{"limit", "--hold"}},
		{[]string{"--subjects", "limit", "--held", "5"}, []string{"limit", "leave it out"}},
	} {
		_, err := parse(c.args)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want, "%v", c.args)
		}
	}
}

func TestPasswordsAreNotRepeatedInErrors(t *testing.T) {
	t.Parallel()
	file := written(t, "nodes=redis://u:s3cret@a:1,redis://u:s3cret@b:1\n")
	for _, args := range [][]string{
		{"--nodes", "redis://u:s3cret@a:1,", "redis://u:s3cret@b:1"}, // a space too many
		{"--nodes", "u:s3cret@a:1"},
		{"--node", "redis://u:s3cret@a:1"},
		{"--nodes", "redis://u:s3cret@a:1", "--durable"},
		{"--scenario", file},
	} {
		_, err := parse(args)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "s3cret", "%v", args)
	}
	for _, url := range []string{"redis://:s3cret@127.0.0.1:1", "redis://:s3c/ret@127.0.0.1:1", "redis://:s3,cret@127.0.0.1:1", "redis://:s3%zzcret@127.0.0.1:1", "http://:s3cret@127.0.0.1:1"} {
		got := call(t.Context(), short("--nodes", url)...)
		assert.NotZero(t, got.code)
		assert.NotRegexp(t, "s3|cret", got.errors)
	}
}

func TestHelpNamesTheFlagsAndIsNoFailure(t *testing.T) {
	t.Parallel()
	got := call(t.Context(), "--help")
	assert.Zero(t, got.code)
	assert.Empty(t, got.errors)
	for _, want := range []string{"-scenario", "-fault", `(default "embedded")`} {
		assert.Contains(t, got.out, want)
	}
	got = call(t.Context(), "--bogus")
	assert.Equal(t, exitUsage, got.code)
	assert.Equal(t, 1, strings.Count(got.errors, "\n"), "an error stands alone: %s", got.errors)
	assert.Empty(t, got.out)
}
