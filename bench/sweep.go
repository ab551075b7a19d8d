package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A sweep is several values for one part of the load.
type sweep struct {
	key    string
	values []int
}

// sweeps are measured one after the other; each varies its own part of the load alone.
type sweeps struct {
	all       []sweep
	inherited bool // from the scenario: the first on the command line replaces them
}

func (s *sweeps) String() string {
	var texts []string
	for _, one := range s.all {
		texts = append(texts, one.key+"="+strings.Trim(strings.ReplaceAll(fmt.Sprint(one.values), " ", ","), "[]"))
	}
	return strings.Join(texts, "; ")
}

var sweepKeys = []string{"callers", "nodes", "processes", "length"}

func (s *sweeps) Set(text string) error {
	key, list, ok := strings.Cut(text, "=")
	if !ok || !slices.Contains(sweepKeys, key) {
		return fmt.Errorf("%q: must be one of %s, then = and numbers with commas between them", text, strings.Join(sweepKeys, ", "))
	}
	one := sweep{key: key}
	for v := range strings.SplitSeq(list, ",") {
		var n int
		if _, err := fmt.Sscanf(v+"\n", "%d\n", &n); err != nil || n < 1 {
			return fmt.Errorf("%q: %q is not a number above zero", text, v)
		}
		one.values = append(one.values, n)
	}
	if s.inherited {
		s.all, s.inherited = nil, false
	}
	if slices.ContainsFunc(s.all, func(t sweep) bool { return t.key == key }) {
		return fmt.Errorf("%q: there is a sweep of %s already", text, key)
	}
	s.all = append(s.all, one)
	return nil
}

func (s *sweeps) has(key string) bool {
	return slices.ContainsFunc(s.all, func(t sweep) bool { return t.key == key })
}

// points are the loads of the run: one, or those of the sweeps.
func (o *options) points() []record.Load {
	if len(o.sweeps.all) == 0 {
		return []record.Load{o.load}
	}
	var points []record.Load
	for _, s := range o.sweeps.all {
		for _, v := range s.values {
			l := o.load
			l.Point = fmt.Sprintf("%s=%d", s.key, v)
			switch s.key {
			case "callers":
				l.Callers = v
				l.Processes = min(l.Processes, v)
			case "nodes":
				l.Nodes = v
			case "processes":
				l.Processes = v
			case "length":
				l.Length = v
			}
			points = append(points, l)
		}
	}
	return points
}
