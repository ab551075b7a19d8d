package main

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// A record keeps the transitions, prints them, and lets the story wait for one.
type record struct {
	mu      sync.Mutex
	out     io.Writer
	all     []Transition
	changed chan struct{} // closed with the next one
}

func newRecord(out io.Writer) *record { return &record{out: out, changed: make(chan struct{})} }

func (r *record) tell(t Transition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(r.out, t)
	r.all = append(r.all, t)
	close(r.changed)
	r.changed = make(chan struct{})
}

// say prints what is done to the candidates.
func (r *record) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// anybody is who, where it does not matter.
const anybody = ""

// await returns the index of the first such transition from an index on, and
// waits for it if need be.
func (r *record) await(ctx context.Context, from int, what What, who string) (int, error) {
	for {
		r.mu.Lock()
		all, changed := r.all, r.changed
		r.mu.Unlock()
		for ; from < len(all); from++ {
			if t := all[from]; t.What == what && (who == anybody || t.Who == who) {
				return from, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for %q (%s): %w", what, who, context.Cause(ctx))
		}
	}
}

func (r *record) who(i int) string { return r.transitions()[i].Who }

func (r *record) transitions() []Transition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}
