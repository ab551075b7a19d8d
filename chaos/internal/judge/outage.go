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
	at, start int64
	asking    map[*history.Acquisition]bool
	holders   map[string]int // of a key
	paused    map[int]bool   // clients
	nodes     int            // zero: they have yet to begin
	down      map[int]int    // reasons why a node cannot vote

	open    map[wait]Outage
	longest map[history.Lock]Outage
}

// A moment is when something changes.
type moment struct {
	at     int64
	change func(*watcher)
}

// outages finds the longest for each kind of lock.
func outages(events []history.Event, all []*history.Acquisition) map[history.Lock]Outage {
	if len(events) == 0 {
		return nil
	}
	w := &watcher{
		at: events[0].At, start: events[0].At, asking: map[*history.Acquisition]bool{}, holders: map[string]int{},
		paused: map[int]bool{}, down: map[int]int{}, open: map[wait]Outage{}, longest: map[history.Lock]Outage{},
	}
	moments := append(momentsOf(all, events), momentsOfWorld(events)...)
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	for _, m := range moments {
		w.goTo(m.at)
		m.change(w)
	}
	return w.longest
}

// momentsOf are those of clients. One whose client was killed asked until then, or not at all if
// that is not known.
func momentsOf(all []*history.Acquisition, events []history.Event) (moments []moment) {
	killed := map[int]int64{}
	for _, e := range events {
		if e.Kind == history.Killed {
			killed[e.Who] = e.At
		}
	}
	for _, a := range all {
		until := min(a.Granted, a.Failed)
		if at, ok := killed[a.Who]; ok {
			until = min(until, at)
		}
		if until != history.Never {
			moments = append(moments,
				moment{a.Asked, func(w *watcher) { w.asking[a] = true }},
				moment{until, func(w *watcher) { delete(w.asking, a) }})
		}
		if a.Held() && a.Granted < a.End() {
			moments = append(moments,
				moment{a.Granted, func(w *watcher) { w.grant(a) }},
				moment{a.End(), func(w *watcher) { w.hold(a, -1) }})
		}
	}
	return moments
}

// momentsOfWorld are those of nodes, and of clients that are paused.
func momentsOfWorld(events []history.Event) (moments []moment) {
	for _, e := range events {
		switch e.Kind {
		case history.Began:
			moments = append(moments, moment{max(e.At, e.Until), func(w *watcher) { w.nodes = len(e.Nodes) }})
		case history.Fault:
			moments = append(moments, moment{e.At, func(w *watcher) { w.disturb(e.Nodes, 1) }})
		case history.Healed:
			moments = append(moments, moment{max(e.At, e.Until), func(w *watcher) { w.disturb(e.Nodes, -1) }})
		case history.Paused, history.Resumed:
			moments = append(moments, moment{e.At, func(w *watcher) { w.paused[e.Who] = e.Kind == history.Paused }})
		}
	}
	return moments
}

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

// goTo takes the time until a moment into account, in which all stays as it is.
func (w *watcher) goTo(at int64) {
	d := time.Duration(at - w.at)
	if d == 0 {
		return
	}
	if !w.majorityVotes() {
		clear(w.open)
	}
	busy := w.busy()
	maps.DeleteFunc(w.open, func(of wait, _ Outage) bool { return w.isHeld(of, busy) })
	waiting := map[wait]bool{}
	for a := range w.asking {
		for _, name := range a.Names {
			of := wait{a.Lock, name, a.Most}
			if !w.paused[a.Who] && !w.isHeld(of, busy) && w.majorityVotes() {
				waiting[of] = true
			}
		}
	}
	byName := func(a, b wait) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.most, b.most)) }
	for _, of := range slices.SortedFunc(maps.Keys(waiting), byName) { // or a tie would be settled by chance
		o, ok := w.open[of]
		if !ok {
			o = Outage{Name: of.name, From: time.Duration(w.at - w.start)}
		}
		o.For += d
		w.open[of] = o
		if o.For > w.longest[of.lock].For {
			w.longest[of.lock] = o
		}
	}
	w.at = at
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
