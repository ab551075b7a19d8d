// Package report tells a person what becomes of a lock while a command waits for it and has it.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/alike"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// A Reporter tells on standard error what becomes of a lock while "redlock run" or "redlock hold"
// waits for it and has it: with --verbose a line for each state, else on a terminal one line about
// the waiting, which is kept up to date in place and is erased in the end, else nothing.
//
// It is an Observer, which nothing waits for: a terminal that is held up (Ctrl-S) or a pipe that
// no process reads delays neither the lock nor the command.
type Reporter struct {
	out     io.Writer
	names   []string
	title   string // the names, for people
	Permits int    // of the name, if there are several; set before the first event, as weight
	Weight  int    // so many permits are wanted
	verbose bool
	Logged  bool // the log tells of the votes; set before the first event

	inPlace bool
	width   func() int // of the terminal, in columns
	changed chan struct{}
	done    chan struct{} // the waiting is over
	erased  chan struct{} // nothing is in place any more

	sameServer sync.Once // that is named twice: a mistake in the settings, which is told without --verbose, too

	mu     sync.Mutex
	state  obstacle        // what is waited for; the zero value before the first try has failed
	faulty map[node]string // those whose last vote was a fault, and what they said
}

// A node is a server in a group, which has a state for each group that it is in.
type node struct{ group, address string }

// New returns a Reporter for the lock of the names. The caller calls Waited when the
// waiting is over.
func New(out io.Writer, names []string, verbose, quiet bool) *Reporter {
	r := &Reporter{
		out: out, names: names, title: plain.Words(names), verbose: verbose, inPlace: plain.IsTerminal(out) && !verbose && !quiet,
		width:   func() int { return plain.ScreenOf(out).Width },
		changed: make(chan struct{}, 1), done: make(chan struct{}), erased: make(chan struct{}),
		faulty: map[node]string{},
	}
	if r.inPlace {
		go r.draw()
	} else {
		close(r.erased)
	}
	return r
}

// An obstacle is why a try has failed.
type obstacle struct {
	kind   error          // ErrHeld, ErrQuarantine or ErrNoQuorum
	held   redlock.Holder // who holds it, if that is known
	names  string         // of several, those that are in the way
	all    int            // permits of which none is free, or fewer than weight
	weight int
	beside int       // what keeps from permits of which some are free: see redlock.QuorumError
	until  time.Time // when it may be over; zero if that is not known
	never  bool      // a key has no TTL
	behind bool      // this machine's clock is the reason of the quarantine
}

// obstacleOf reads the error of a try that failed at a moment. ok is false if that was the end of
// the caller's time, which says nothing about the servers.
func (r *Reporter) obstacleOf(err error, at time.Time) (o obstacle, ok bool) {
	var vote *redlock.QuorumError
	if !errors.As(err, &vote) {
		return obstacle{}, false
	}
	o.held = vote.Holder
	if o.beside = vote.Beside; r.Permits > 1 && o.beside == 0 { // each try is for one of them, and each has another holder
		o.held, o.all, o.weight = redlock.Holder{}, r.Permits, r.Weight
	}
	if o.never = vote.Remaining == redlock.NoTTL; vote.Remaining > 0 {
		o.until = at.Add(vote.Remaining)
	}
	switch {
	case errors.Is(vote.Err, redlock.ErrHeld):
		o.kind = redlock.ErrHeld
		switch inTheWay := vote.InTheWay; {
		case len(inTheWay) > 0:
			o.names = plain.Words(inTheWay)
		case len(r.names) > 1 && slices.Contains(r.names, vote.Name): // is waited for before the others
			o.names = plain.Words([]string{vote.Name})
		}
	case errors.Is(vote.Err, redlock.ErrNoQuorum):
		o.kind = redlock.ErrNoQuorum
		if q := (*protocol.QuarantineError)(nil); errors.As(err, &q) {
			o.kind, o.behind = redlock.ErrQuarantine, q.Behind
		}
	default:
		return obstacle{}, false
	}
	return o, true
}

// Refusal says why a try has failed at this moment, and whether the key has no TTL.
func (r *Reporter) Refusal(err error) (text string, never bool) {
	now := time.Now()
	o, _ := r.obstacleOf(err, now)
	return o.text(now, true), o.never
}

// same reports whether two obstacles are one state: only their time differs.
func (o obstacle) same(other obstacle) bool {
	o.until = other.until
	return o == other
}

// text says what the obstacle is, with times as of now; since says when a holder took the lock
// instead, which stays the same.
func (o obstacle) text(now time.Time, since bool) string {
	left := max(0, o.until.Sub(now))
	switch o.kind {
	case redlock.ErrQuarantine:
		if o.behind {
			return "this machine's clock runs slower than those of most servers, or stood still"
		}
		text := "new or restarted servers have no vote yet"
		switch {
		case since:
			text += " (new ones have it after redlock reset)"
		case left > 0:
			text += ", " + left.Round(time.Second).String() + " left"
		}
		return text
	case redlock.ErrNoQuorum:
		return "no quorum: too few servers answer"
	}
	text := "held by another"
	switch {
	case o.weight > 1:
		text = fmt.Sprintf("fewer than %d of %d permits are free", o.weight, o.all)
	case o.all > 0:
		text = fmt.Sprintf("all %d permits are held", o.all)
	case o.held.Owner != "" && since:
		text = "held by " + plain.Harmless(o.held.Owner) + " since " + o.held.Since.Local().Format(time.DateTime)
	case o.held.Owner != "":
		text = "held by " + plain.Harmless(o.held.Owner) + " for " + max(0, now.Sub(o.held.Since)).Round(time.Second).String()
	}
	switch {
	case o.beside > 1:
		text = fmt.Sprintf("held by permits of %d", o.beside)
	case o.beside > 0 && o.held.Owner != "":
		text += ", a lock without permits"
	case o.beside > 0:
		text = "held by a lock without permits"
	}
	if o.names != "" {
		text += ": " + o.names
	}
	if o.never {
		text += ", by a key without TTL"
	}
	return text
}

// rough returns a time as people want to read it.
func rough(d time.Duration) string {
	if d < time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// Observe implements redlock.Observer.
func (r *Reporter) Observe(e redlock.Event) {
	if e.Kind == redlock.EventVote && errors.Is(e.Err, redlock.ErrSameServer) {
		r.sameServer.Do(func() { fmt.Fprintln(r.out, "redlock: "+plain.Word(e.Node)+": "+plain.OneLine(e.Err.Error())) })
		return
	}
	news := r.learn(e)
	if news == "" {
		return
	}
	if r.verbose {
		fmt.Fprintln(r.out, "redlock: "+news)
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// learn takes an event, and returns a line about the state that has changed by it, if one has.
func (r *Reporter) learn(e redlock.Event) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case redlock.EventVote:
		if news := r.vote(e); !r.Logged {
			return news
		}
	case redlock.EventAttempt, redlock.EventNotAcquired:
		o, ok := r.obstacleOf(e.Err, e.Time)
		if !ok || errors.Is(e.Err, context.DeadlineExceeded) {
			return ""
		}
		old := r.state
		if r.state = o; !o.same(old) {
			return r.title + ": " + o.text(e.Time, true)
		}
	case redlock.EventAcquired:
		return fmt.Sprintf("%s: acquired with %d votes after %s, valid for %s unless renewed", r.title, e.Votes, rough(e.Elapsed), rough(e.Remaining))
	case redlock.EventLost:
		return fmt.Sprintf("%s: lost after %s", r.title, rough(e.Elapsed))
	case redlock.EventReleased:
		return fmt.Sprintf("%s: released after %s, confirmed by %d servers", r.title, rough(e.Elapsed), e.Votes)
	}
	return ""
}

// vote tells when a node begins to fail, and when it votes again: what else it answers, as it does in
// quarantine, does not end a fault.
func (r *Reporter) vote(e redlock.Event) string {
	fault := e.Outcome == redlock.Failed || e.Outcome == redlock.Unknown
	of := node{e.Group, e.Node}
	_, failed := r.faulty[of]
	called := plain.Word(e.Node)
	if e.Group != "" {
		called = "group " + plain.Word(e.Group) + ": " + called
	}
	switch {
	case !fault && (!failed || !e.Op.Acquires() && !e.Op.Extends()):
		return ""
	case !fault:
		delete(r.faulty, of)
		return called + ": answers again"
	}
	why := "no answer"
	if e.Err != nil {
		why = plain.OneLine(e.Err.Error())
	}
	if r.faulty[of] = why; failed {
		return ""
	}
	return called + ": fails: " + why
}

// Because adds to a loss for want of a renewal what the servers said instead.
func (r *Reporter) Because(lost error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var vote *redlock.QuorumError
	if lost == nil || len(r.faulty) == 0 || errors.As(lost, &vote) { // which has it
		return lost
	}
	var nodes, says []string
	for _, n := range slices.SortedFunc(maps.Keys(r.faulty), func(a, b node) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.address, b.address))
	}) {
		nodes, says = append(nodes, n.address), append(says, r.faulty[n])
	}
	return fmt.Errorf("%w: %s", lost, alike.Together(nodes, says))
}

const (
	// redrawn is how often the line in place is drawn if nothing has changed: it has seconds.
	redrawn = time.Second
	// eraseLimit is how long Waited waits for a terminal that is held up.
	eraseLimit = 200 * time.Millisecond

	EraseLine = "\r\x1b[K"
)

// draw keeps the line in place up to date until Waited is called.
func (r *Reporter) draw() {
	defer close(r.erased)
	tick := time.NewTicker(redrawn)
	defer tick.Stop()
	drawn := ""
	for {
		select {
		case <-r.changed:
		case <-tick.C:
		case <-r.done:
			if drawn != "" {
				io.WriteString(r.out, EraseLine)
			}
			return
		}
		if line := r.line(); line != drawn {
			io.WriteString(r.out, EraseLine+line)
			drawn = line
		}
	}
}

// line returns what is to be read while the lock is waited for, at most as wide as the terminal.
func (r *Reporter) line() string {
	r.mu.Lock()
	state := r.state
	r.mu.Unlock()
	if state.kind == nil {
		return ""
	}
	line := []rune("waiting for " + r.title + ": " + state.text(time.Now(), false))
	if most := r.width() - 1; len(line) > most && most > 1 {
		line = append(line[:most-1], '…')
	}
	return string(line)
}

// Waited ends the line in place, for good.
func (r *Reporter) Waited() {
	close(r.done)
	select {
	case <-r.erased:
	case <-time.After(eraseLimit):
	}
}
