package fault

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kinds of faults.
const (
	Kill  = "kill"
	Pause = "pause"
	Slow  = "slow"
)

// A Fault is one line of the schedule, as Parse has read it.
type Fault struct {
	kind        string
	count       int           // the first so many nodes; 0: named ones
	named       []int         // from 1, ascending
	by          time.Duration // of slow
	at, lasts   time.Duration // since the trial's start; until the nodes are mended
	every       time.Duration // from one beginning to the next; 0: once
	remembering bool          // of kill
}

// Kind is Kill, Pause or Slow.
func (f Fault) Kind() string { return f.kind }

// String is the line that Parse reads as f.
func (f Fault) String() string {
	s := f.kind + " " + f.who()
	if f.kind == Slow {
		s += fmt.Sprintf(" by %v", f.by)
	}
	s += fmt.Sprintf(" at %v for %v", f.at, f.lasts)
	if f.every > 0 {
		s += fmt.Sprintf(" every %v", f.every)
	}
	if f.remembering {
		s += " remembering"
	}
	return s
}

func (f Fault) who() string {
	if f.count > 0 {
		return strconv.Itoa(f.count)
	}
	names := make([]string, len(f.named))
	for i, n := range f.named {
		names[i] = strconv.Itoa(n)
	}
	return "nodes " + strings.Join(names, ",")
}

// what is f without its times, as reports show it.
func (f Fault) what(nodes int) string {
	s := fmt.Sprintf("%s %s of %d", f.kind, f.who(), nodes)
	if f.kind == Slow {
		s += fmt.Sprintf(" by %v", f.by)
	}
	return s
}
