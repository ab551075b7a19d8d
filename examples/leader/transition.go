package main

import "fmt"

// What a candidate goes through.
type What string

const (
	Leads     What = "leads"
	StepsDown What = "steps down"
	NoQuorum  What = "reaches too few servers, and tries again"
)

// A Transition is what a candidate tells of itself.
type Transition struct {
	Who  string
	What What
	Why  error // of StepsDown and NoQuorum; nil if it does so by itself
}

func (t Transition) String() string {
	if t.What == StepsDown && t.Why != nil {
		return fmt.Sprintf("%s %s: %v", t.Who, t.What, t.Why)
	}
	return fmt.Sprintf("%s %s", t.Who, t.What) // the servers' answers would fill the screen
}
