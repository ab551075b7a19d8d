package fault

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

var examples = map[string]string{
	Kill:  "kill 2 at 5s for 5s",
	Pause: "pause nodes 2,4 at 5s for 5s",
	Slow:  "slow 2 by 20ms at 5s for 5s",
}

// shortest is the least time a fault may last or wait to come again: nothing here
// breaks and mends nodes faster than that.
const shortest = time.Millisecond

// Parse reads one fault; see the package comment for what there is. Behind the
// nodes the order of words is free.
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

// parseNodes reads whom the fault strikes, and returns the words behind.
func (f *Fault) parseNodes(words []string) ([]string, error) {
	if len(words) == 0 {
		return nil, errors.New("which nodes? write how many, or nodes and their numbers")
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

// complete finds what is missing, and what says nothing about this kind.
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
