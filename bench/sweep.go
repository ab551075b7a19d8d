package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// sweep is several values for one part of the load.
type sweep struct {
	key    string
	values []int
}

func (s *sweep) String() string {
	if s == nil || s.key == "" {
		return ""
	}
	return s.key + "=" + strings.Trim(strings.ReplaceAll(fmt.Sprint(s.values), " ", ","), "[]")
}

func (s *sweep) Set(text string) error {
	*s = sweep{}
	key, list, ok := strings.Cut(text, "=")
	if !ok || !slices.Contains([]string{"callers", "nodes", "held"}, key) {
		return fmt.Errorf("%q: must be callers=, nodes= or held= and numbers with commas between them", text)
	}
	for v := range strings.SplitSeq(list, ",") {
		var n int
		if _, err := fmt.Sscanf(v+"\n", "%d\n", &n); err != nil || n < 1 {
			return fmt.Errorf("%q: %q is not a number above zero", text, v)
		}
		s.values = append(s.values, n)
	}
	s.key = key
	return nil
}

// points are the loads of the run: one, or those of the sweep.
func (o *options) points() []record.Load {
	if o.sweep.key == "" {
		return []record.Load{o.load}
	}
	var points []record.Load
	for _, v := range o.sweep.values {
		l := o.load
		l.Point = fmt.Sprintf("%s=%d", o.sweep.key, v)
		switch o.sweep.key {
		case "callers":
			l.Callers = v
			l.Processes = min(l.Processes, v)
		case "nodes":
			l.Nodes = v
		case "held":
			l.Held = v
			l.Callers = min(l.Callers, v)
			l.Processes = min(l.Processes, l.Callers)
		}
		points = append(points, l)
	}
	return points
}
