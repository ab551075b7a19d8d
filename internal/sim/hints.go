package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// Hints come on a connection of their own, which is opened when somebody
// watches, and closed when nobody has for a while.
const (
	hintsLinger  = time.Second
	hintsBackoff = 250 * time.Millisecond // from a failure to the next request for them

	// hintsChannel is the key of the request for hints: where Redis publishes
	// them.
	hintsChannel = "__redis__:invalidate"
)

// hints is what a link has for them.
type hints struct {
	watchers []*watcher
	wanted   bool           // from the first Watch until soon after the last stop
	asking   bool           // a request for hints is under way
	giver    int            // the server's process that gives them, counted from one; zero: none yet
	idle     *event         // nobody has watched for long enough; nil if somebody does
	counts   map[string]int // hints sent, by key
	there    time.Duration  // when the last one arrives; none may overtake it
}

type watcher struct {
	key  string
	hint func()
}

// Watch implements redlock.Watchable.
func (l *link) Watch(key string, hint func()) (stop func()) {
	w, h := l.world(), &l.hints
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.closed || l.client.dead {
		return func() {}
	}
	one := &watcher{key, hint}
	h.watchers = append(h.watchers, one)
	if h.idle != nil {
		w.timeline.drop(h.idle)
		h.idle = nil
	}
	if h.counts == nil {
		h.counts = map[string]int{}
	}
	if !h.wanted {
		h.wanted = true
		l.askForHints()
	}
	return func() { l.stop(one) }
}

func (l *link) stop(one *watcher) {
	w, h := l.world(), &l.hints
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(h.watchers, one)
	if i < 0 {
		return
	}
	h.watchers = slices.Delete(h.watchers, i, i+1)
	if len(h.watchers) == 0 {
		h.idle = w.timeline.enter(&event{at: l.client.moment(hintsLinger), inner: true, f: func() { l.client.do(l.rest) }})
	}
}

// rest closes the connection for hints, unless somebody watches again.
func (l *link) rest() {
	l.world().mu.Lock()
	defer l.world().mu.Unlock()
	if len(l.hints.watchers) == 0 {
		l.endHints()
	}
}

// endHints has the server forget what it was to tell. The World must be locked.
func (l *link) endHints() {
	l.hints.watchers, l.hints.wanted, l.hints.giver = nil, false, 0
	l.server.unwatchedBy(l)
}

// able says whether the server gives hints.
func (l *link) able() bool { return l.hints.giver == l.server.run+1 }

// askForHints has the server begin with them. If it cannot be reached, it is
// asked once it can. The World must be locked.
func (l *link) askForHints() {
	if l.able() || l.hints.asking || !l.hints.wanted {
		return
	}
	c := &call{link: l, req: redlock.Request{Op: redlock.OpWatch, Key: hintsChannel, Timeout: l.world().net.Patience}}
	c.to = opener{c}
	l.hints.asking = l.submit(c) == nil
}

// An opener takes the reply to a request for hints.
type opener struct{ *call }

// Receive implements redlock.Receiver.
func (o opener) Receive(_ int, reply redlock.Reply) {
	l, w := o.link, o.link.world()
	w.mu.Lock()
	defer w.mu.Unlock()
	l.hints.asking = false
	if reply.Outcome == redlock.Granted && l.hints.wanted {
		l.hints.giver = o.run + 1
		l.pass(everything) // what was asked before is not watched
	}
	if !l.able() {
		w.timeline.enter(&event{at: l.client.moment(hintsBackoff), inner: true, f: func() {
			l.client.do(func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				l.askForHints()
			})
		}})
	}
}

// hinted takes a hint off the network.
func (l *link) hinted(key string) {
	l.world().mu.Lock()
	defer l.world().mu.Unlock()
	l.world().tellHint(l, key)
	l.pass(key)
}

// pass gives a hint to those whom it concerns: one after the other, so that what
// it sets off does not race. The World must be locked.
func (l *link) pass(key string) {
	for _, one := range l.hints.watchers {
		if key == everything || key == one.key {
			l.world().timeline.after(0, func() { l.client.do(func() { l.call(one) }) })
		}
	}
}

// call gives a hint, unless it was stopped.
func (l *link) call(one *watcher) {
	l.world().mu.Lock()
	watching := slices.Contains(l.hints.watchers, one)
	l.world().mu.Unlock()
	if watching {
		one.hint()
	}
}
