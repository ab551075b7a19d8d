// Package report shows a person the state of a lock while a command waits for it and holds it.
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
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A Reporter writes the state of a lock to standard error while "redlock run" or "redlock hold"
// waits for it and holds it. With --verbose it writes a line for each state. Otherwise, on a
// terminal, it writes one line about the wait, which is updated in place and erased at the end.
//
// A Reporter is an Observer. Because no operation waits for an Observer, a blocked terminal
// (Ctrl-S) or an unread pipe delays neither the lock nor the command.
type Reporter struct {
	out     io.Writer
	names   []string
	title   string // names, for people
	Permits int    // number of permits, if the name has several; set before the first event, like Weight
	Weight  int    // number of requested permits
	verbose bool
	Logged  bool // the log contains the votes; set before the first event

	inPlace bool
	width   func() int // width of the terminal, in columns
	changed chan struct{}
	done    chan struct{} // the wait has ended
	erased  chan struct{} // the line in place is erased

	sameServer sync.Once // for a server with two names: a mistake in the settings, reported even without --verbose

	mu     sync.Mutex
	state  obstacle        // current obstacle; the zero value before the first failed try
	faulty map[node]string // nodes whose last vote was a fault, with its text
}

// A node is a server in a group. Its state is separate for each of its groups.
type node struct{ group, address string }

// New returns a Reporter for the lock of the names. The caller calls Waited after the wait.
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

// An obstacle is the reason for a failed try.
type obstacle struct {
	kind   error          // ErrHeld, ErrQuarantine or ErrNoQuorum
	held   redlock.Holder // holder, if known
	names  string         // if there are several names, the blocked ones
	of     int            // number of permits of the name, if above one
	weight int            // number of requested permits
	isFull bool           // fewer than weight are free
	beside int            // obstacle to permits although some are free: see Beside of redlock.QuorumError
	until  time.Time      // time at which it may end; zero if unknown
	never  bool           // a key has no TTL
	behind bool           // this machine's clock is the reason for the quarantine
}

// obstacleOf converts the error of a failed try. ok is false if the caller's time had expired,
// because such an error contains no information about the servers.
func (r *Reporter) obstacleOf(err error, at time.Time) (o obstacle, ok bool) {
	var vote *redlock.QuorumError
	if !errors.As(err, &vote) {
		return obstacle{}, false
	}
	o.held = vote.Holder
	if o.beside = vote.Beside; r.Permits > 1 && o.beside == 0 { // each try requests one of several permits, and each permit has another holder
		o.held, o.of, o.weight, o.isFull = redlock.Holder{}, r.Permits, r.Weight, vote.Permits > 0
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
		case len(r.names) > 1 && slices.Contains(r.names, vote.Name): // the caller waits for this name before the others
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

// Refusal describes the reason of a failed try at this moment, and reports whether the key has no
// TTL.
func (r *Reporter) Refusal(err error) (text string, never bool) {
	now := time.Now()
	o, _ := r.obstacleOf(err, now)
	return o.text(now, true), o.never
}

// same reports whether two obstacles are the same state, and differ only in their times.
func (o obstacle) same(other obstacle) bool {
	o.until = other.until
	return o == other
}

// text describes the obstacle, with times relative to now. If since is true, it shows instead the
// time at which the holder acquired the lock, which stays the same.
func (o obstacle) text(now time.Time, since bool) string {
	left := max(0, o.until.Sub(now))
	switch o.kind {
	case redlock.ErrQuarantine:
		if o.behind {
			return "this machine's clock runs slower than the clocks of most servers, or stood still"
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
	case o.weight > 1 && o.isFull:
		text = fmt.Sprintf("fewer than %d of %d permits are free", o.weight, o.of)
	case o.isFull:
		text = fmt.Sprintf("all %d permits are held", o.of)
	case o.weight > 1:
		text = fmt.Sprintf("%d free permits of %d are not found yet", o.weight, o.of)
	case o.of > 0:
		text = fmt.Sprintf("a free permit of %d is not found yet", o.of)
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

// rough formats a time for people.
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

// learn processes an event, and returns a line if the state has changed.
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

// vote reports the first fault of a node, and its next vote. Other answers, as in quarantine, do
// not end a fault. Requests that end with our own Close are not faults.
func (r *Reporter) vote(e redlock.Event) string {
	fault := e.Outcome == redlock.Failed || e.Outcome == redlock.Unknown
	of := node{e.Group, e.Node}
	_, failed := r.faulty[of]
	called := plain.Word(e.Node)
	if e.Group != "" {
		called = "group " + plain.Word(e.Group) + ": " + called
	}
	switch {
	case errors.Is(e.Err, pool.ErrClosed), !fault && (!failed || !e.Op.Acquires() && !e.Op.Extends()):
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

// Because adds the faults of the servers to the error of a lock that was lost because it was not
// renewed.
func (r *Reporter) Because(lost error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var vote *redlock.QuorumError
	if lost == nil || len(r.faulty) == 0 || errors.As(lost, &vote) { // the error contains them already
		return lost
	}
	var nodes, says []string
	for _, n := range slices.SortedFunc(maps.Keys(r.faulty), func(a, b node) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.address, b.address))
	}) {
		nodes, says = append(nodes, n.address), append(says, r.faulty[n])
	}
	return fmt.Errorf("%w: %s", lost, protocol.Together(nodes, says))
}

const (
	// redrawn is the interval at which an unchanged line is drawn again, because it shows seconds.
	redrawn = time.Second
	// eraseLimit is the time for which Waited waits for a blocked terminal.
	eraseLimit = 200 * time.Millisecond

	EraseLine = "\r\x1b[K"
)

// draw updates the line in place until Waited is called.
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

// line returns the line for the wait, at most as wide as the terminal.
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

// Waited ends the line in place permanently.
func (r *Reporter) Waited() {
	close(r.done)
	select {
	case <-r.erased:
	case <-time.After(eraseLimit):
	}
}
