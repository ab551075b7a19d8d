// Package fault breaks nodes during a trial, at times that are known beforehand.
//
// A fault is a line of text:
//
//	kill 2 at 5s for 5s                nodes 1 and 2 die at 5 s and are started again at 10 s
//	pause nodes 2,4 at 5s for 5s       these two hang, as by SIGSTOP
//	slow 2 by 20ms at 5s for 5s        each byte, each way, arrives 20 ms later
//	kill 1 at 2s for 1s every 3s       node 1, then node 2, and so on until the trial's end
//	kill 3 at 5s for 5s remembering    they come back with their memory
//	kill leader at 5s for 5s           the one that leads then; follower is one that does not
//
// A number alone means the first nodes, so that libraries which use the first node only feel the
// fault too; with every, it is the turn of as many next ones each time, while nodes that are named
// are struck again and again. Nodes are numbered from 1, as people count. A killed node comes back
// as it is configured: empty if it writes nothing to disk. Of nodes that elect no leader, the first
// counts as one.
//
// Parse reads the line, NewPlan lays faults out over a trial, Nodes are what they happen to, and
// Plan.Play makes them happen.
package fault

import (
	"errors"
	"fmt"
	"slices"
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

// Roles of a node among those that elect a leader.
const (
	Leader   = "leader"
	Follower = "follower"
)

// A Fault is one line of the schedule, as Parse has read it.
type Fault struct {
	kind        string
	count       int           // the first so many nodes; 0: named ones, or by role
	named       []int         // from 1, ascending
	role        string        // of the one node; "": by count or name
	by          time.Duration // of slow
	at, lasts   time.Duration // since the trial's start; until the nodes are mended
	every       time.Duration // from one beginning to the next; 0: once
	remembering bool          // of kill
}

// Kind is Kill, Pause or Slow.
func (f Fault) Kind() string { return f.kind }

// String is the line that Parse reads as f.
func (f Fault) String() string {
	s := f.kind + " " + f.which()
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

func (f Fault) which() string {
	switch {
	case f.role != "":
		return f.role
	case f.count > 0:
		return strconv.Itoa(f.count)
	}
	names := make([]string, len(f.named))
	for i, n := range f.named {
		names[i] = strconv.Itoa(n)
	}
	return "nodes " + strings.Join(names, ",")
}

// withoutTimes is f as reports show it.
func (f Fault) withoutTimes(nodes int) string {
	s := fmt.Sprintf("%s %s of %d", f.kind, f.which(), nodes)
	if f.kind == Slow {
		s += fmt.Sprintf(" by %v", f.by)
	}
	return s
}

var examples = map[string]string{
	Kill:  "kill 2 at 5s for 5s",
	Pause: "pause nodes 2,4 at 5s for 5s",
	Slow:  "slow 2 by 20ms at 5s for 5s",
}

// shortest is the least time a fault may last or wait to come again: nothing here breaks and mends
// nodes faster than that.
const shortest = time.Millisecond

// Parse reads one fault; see the package comment for what there is. Behind the nodes the order of
// words is free.
func Parse(s string) (Fault, error) {
	words := strings.Fields(s)
	f, err := parse(words)
	if err == nil {
		return f, nil
	}
	example := examples[Kill]
	if len(words) > 0 && examples[words[0]] != "" {
		example = examples[words[0]]
	}
	return Fault{}, fmt.Errorf("fault %q: %w; an example: %s", s, err, example)
}

func parse(words []string) (Fault, error) {
	if len(words) == 0 {
		return Fault{}, errors.New("it is empty")
	}
	f := Fault{kind: words[0]}
	if examples[f.kind] == "" {
		return f, fmt.Errorf("%q is no kind of fault; there are %s, %s and %s", f.kind, Kill, Pause, Slow)
	}
	rest, err := f.parseNodes(words[1:])
	if err != nil {
		return f, err
	}
	if err := f.parseClauses(rest); err != nil {
		return f, err
	}
	return f, f.complete()
}

// parseNodes reads the nodes that the fault strikes, and returns the words behind.
func (f *Fault) parseNodes(words []string) ([]string, error) {
	if len(words) == 0 {
		return nil, errors.New("which nodes? write how many, or nodes and their numbers, or leader or follower")
	}
	if words[0] == Leader || words[0] == Follower {
		f.role = words[0]
		return words[1:], nil
	}
	if words[0] != "nodes" {
		n, err := strconv.Atoi(words[0])
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number of nodes, from 1 up", words[0])
		}
		f.count = n
		return words[1:], nil
	}
	if len(words) == 1 {
		return nil, errors.New("which nodes? write their numbers with commas between them")
	}
	for name := range strings.SplitSeq(words[1], ",") {
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not the number of a node; they are counted from 1, with commas and no spaces between them", name)
		}
		if slices.Contains(f.named, n) {
			return nil, fmt.Errorf("node %d is listed twice", n)
		}
		f.named = append(f.named, n)
	}
	slices.Sort(f.named)
	return words[2:], nil
}

// parseClauses reads at, for, by, every and remembering, in any order.
func (f *Fault) parseClauses(words []string) error {
	times := map[string]*time.Duration{"at": &f.at, "for": &f.lasts, "by": &f.by, "every": &f.every}
	seen := map[string]bool{}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		into := times[word]
		if into == nil && word != "remembering" {
			return fmt.Errorf("%q is not known here; there are at, for, by, every and remembering", word)
		}
		if seen[word] {
			return fmt.Errorf("%s is there twice", word)
		}
		seen[word] = true
		if into == nil {
			f.remembering = true
			continue
		}
		if len(words) == 0 {
			return fmt.Errorf("a time is missing behind %s", word)
		}
		d, err := time.ParseDuration(words[0])
		if err != nil {
			return fmt.Errorf("%q behind %s is not a time such as 5s or 20ms", words[0], word)
		}
		if d <= 0 {
			return fmt.Errorf("%s %v: the time must be above zero", word, d)
		}
		*into, words = d, words[1:]
	}
	return nil
}

// complete finds words that are missing, and words that mean nothing for this kind.
func (f *Fault) complete() error {
	switch {
	case f.at == 0:
		return errors.New("at is missing: when does it begin?")
	case f.lasts == 0:
		return errors.New("for is missing: how long does it last?")
	case f.lasts < shortest:
		return fmt.Errorf("for %v: it must last %v at least", f.lasts, shortest)
	case f.every > 0 && f.every < shortest:
		return fmt.Errorf("every %v: it must be %v at least", f.every, shortest)
	case f.kind == Slow && f.by == 0:
		return errors.New("by is missing: how much later does each byte arrive?")
	case f.kind != Slow && f.by > 0:
		return fmt.Errorf("by is for %s alone", Slow)
	case f.kind != Kill && f.remembering:
		return fmt.Errorf("remembering is for %s alone: other nodes forget nothing", Kill)
	}
	return nil
}
