package judge

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// An Outage is a time in which a client asked for a lock that had no holder, and did not get it,
// though a majority of the nodes could vote. It is reported and not judged: a client that dies keeps
// its locks, and the names that it has for a set, for up to a TTL, and a busy machine is slow.
//
// A name counts as held, too, while a set that has it in its list waits for another that is held:
// the set may have it already. To a client that asks for a permit a name is held if all slots are
// that it knows of.
type Outage struct {
	For  time.Duration // in which at least one client asked that was not paused
	Name string
	From time.Duration // since the beginning of the history
}

// A wait is what is asked for.
type wait struct {
	lock history.Lock
	name string
	most int // permits
}

// A watcher goes through a history from moment to moment.
type watcher struct {
	moments []moment
	start   int64

	asking  map[*history.Acquisition]bool
	holders map[string]int // of a key
	paused  map[int]bool   // clients
	nodes   int            // zero: they have yet to begin
	down    map[int]int    // reasons why a node cannot vote

	open    map[wait]Outage
	longest map[history.Lock]Outage
}

// A moment is when something changes.
type moment struct {
	at     int64
	change func()
}

// outages finds the longest for each kind of lock.
func outages(events []history.Event, all []*history.Acquisition) map[history.Lock]Outage {
	if len(events) == 0 {
		return nil
	}
	w := &watcher{
		start: events[0].At, asking: map[*history.Acquisition]bool{}, holders: map[string]int{},
		paused: map[int]bool{}, down: map[int]int{}, open: map[wait]Outage{}, longest: map[history.Lock]Outage{},
	}
	killed := map[int]int64{}
	for _, e := range events {
		switch e.Kind {
		case history.Killed:
			killed[e.Who] = e.At
		case history.Began:
			w.at(max(e.At, e.Until), func() { w.nodes = len(e.Nodes) })
		case history.Fault:
			w.at(e.At, func() { w.disturb(e.Nodes, 1) })
		case history.Healed:
			w.at(max(e.At, e.Until), func() { w.disturb(e.Nodes, -1) })
		case history.Paused, history.Resumed:
			w.at(e.At, func() { w.paused[e.Who] = e.Kind == history.Paused })
		}
	}
	for _, a := range all {
		until := min(a.Granted, a.Failed)
		if at, ok := killed[a.Who]; ok {
			until = min(until, at)
		}
		if until != history.Never { // else its client was killed, at an unknown time
			w.at(a.Asked, func() { w.asking[a] = true })
			w.at(until, func() { delete(w.asking, a) })
		}
		if a.Held() && a.Granted < a.End() {
			w.at(a.Granted, func() { w.grant(a) })
			w.at(a.End(), func() { w.hold(a, -1) })
		}
	}
	slices.SortStableFunc(w.moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	now := w.start
	for _, m := range w.moments {
		if m.at != now {
			w.pass(now, m.at)
		}
		m.change()
		now = m.at
	}
	return w.longest
}

func (w *watcher) at(at int64, change func()) { w.moments = append(w.moments, moment{at, change}) }

// grant ends the outages of those who ask for a permit, too, if they could have had this one: others
// may be free.
func (w *watcher) grant(a *history.Acquisition) {
	w.hold(a, 1)
	maps.DeleteFunc(w.open, func(of wait, _ Outage) bool {
		return a.Lock.IsPermit() && of.name == a.Name && a.Permit < of.most
	})
}

func (w *watcher) hold(a *history.Acquisition, by int) {
	for _, key := range a.Keys() {
		w.holders[key] += by
	}
}

func (w *watcher) disturb(nodes []int, by int) {
	for _, i := range nodes {
		w.down[i] += by
	}
}

// pass takes the time between two moments into account, in which all stays as it is.
func (w *watcher) pass(from, to int64) {
	busy := w.busy()
	vacant := func(of wait) bool { return w.majorityVotes() && !w.isHeld(of, busy) }
	maps.DeleteFunc(w.open, func(of wait, _ Outage) bool { return !vacant(of) })
	waiting := map[wait]bool{}
	for a := range w.asking {
		for _, name := range a.Names {
			if of := (wait{a.Lock, name, a.Most}); !w.paused[a.Who] && vacant(of) {
				waiting[of] = true
			}
		}
	}
	byName := func(a, b wait) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.most, b.most)) }
	for _, of := range slices.SortedFunc(maps.Keys(waiting), byName) { // or a tie would be settled by chance
		o, ok := w.open[of]
		if !ok {
			o = Outage{Name: of.name, From: time.Duration(from - w.start)}
		}
		o.For += time.Duration(to - from)
		w.open[of] = o
		if o.For > w.longest[of.lock].For {
			w.longest[of.lock] = o
		}
	}
}

// majorityVotes reports whether a majority of nodes can vote.
func (w *watcher) majorityVotes() bool {
	out := 0
	for _, reasons := range w.down {
		if reasons > 0 {
			out++
		}
	}
	return w.nodes-out > w.nodes/2
}

// busy are the names that are held, and those that sets may have while they wait for them.
func (w *watcher) busy() map[string]bool {
	busy := map[string]bool{}
	for name, n := range w.holders {
		busy[name] = n > 0
	}
	isBusy := func(name string) bool { return busy[name] }
	for more := true; more; {
		more = false
		for a := range w.asking {
			if !slices.ContainsFunc(a.Names, isBusy) {
				continue
			}
			for _, name := range a.Names {
				more = more || !busy[name]
				busy[name] = true
			}
		}
	}
	return busy
}

func (w *watcher) isHeld(of wait, busy map[string]bool) bool {
	for slot := 1; slot < of.most; slot++ {
		if w.holders[history.Slot(of.name, slot)] == 0 {
			return false
		}
	}
	return busy[of.name]
}
