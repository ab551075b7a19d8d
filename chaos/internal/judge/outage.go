package judge

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// An Outage is a time in which a client asked for a name that had no holder, and did not get it,
// though a majority of the nodes could vote. It is reported and not judged, because a client that
// dies keeps its locks for up to a TTL, and a busy machine is slow.
type Outage struct {
	For  time.Duration // in which at least one client asked that was not paused
	Name string
	From time.Duration // since the beginning of the history
}

// A watcher goes through a history from moment to moment.
type watcher struct {
	moments []moment

	asking  map[*history.Acquisition]bool
	holders map[string]int // of a name, or of one of its permits
	paused  map[int]bool   // clients
	nodes   int            // zero: they have yet to begin
	down    map[int]int    // reasons why a node cannot vote

	open    map[string]Outage // by name
	longest Outage
}

// A moment is when something changes.
type moment struct {
	at     int64
	change func()
}

// longestOutage finds the longest of all names.
func longestOutage(events []history.Event, all []*history.Acquisition) Outage {
	w := &watcher{
		asking: map[*history.Acquisition]bool{}, holders: map[string]int{},
		paused: map[int]bool{}, down: map[int]int{}, open: map[string]Outage{},
	}
	killed := map[int]int64{}
	for _, e := range events {
		switch e.Kind {
		case history.Killed:
			killed[e.Who] = e.At
		case history.Began:
			w.at(max(e.At, e.Until), func() { w.nodes = len(e.Nodes) })
		case history.Fault:
			w.at(e.At, func() { count(w.down, e.Nodes, 1) })
		case history.Healed:
			w.at(max(e.At, e.Until), func() { count(w.down, e.Nodes, -1) })
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
			w.at(a.Granted, func() { count(w.holders, a.Names, 1) })
			w.at(a.End(), func() { count(w.holders, a.Names, -1) })
		}
	}
	slices.SortStableFunc(w.moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	for i, m := range w.moments {
		if i > 0 && w.moments[i-1].at < m.at {
			w.pass(w.moments[i-1].at, m.at)
		}
		m.change()
	}
	if w.longest.For > 0 {
		w.longest.From -= time.Duration(events[0].At)
	}
	return w.longest
}

func (w *watcher) at(at int64, change func()) { w.moments = append(w.moments, moment{at, change}) }

func count[K comparable](all map[K]int, of []K, by int) {
	for _, k := range of {
		all[k] += by
	}
}

// pass takes the time between two moments into account, in which all stays as it is.
func (w *watcher) pass(from, to int64) {
	voters := w.nodes
	for _, reasons := range w.down {
		if reasons > 0 {
			voters--
		}
	}
	busy, votes := w.busy(), voters > w.nodes/2
	maps.DeleteFunc(w.open, func(name string, _ Outage) bool { return busy[name] || !votes })
	waiting := map[string]bool{}
	for a := range w.asking {
		for _, name := range a.Names {
			if votes && !busy[name] && !w.paused[a.Who] {
				waiting[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(waiting)) { // or a tie would be settled by chance
		o, ok := w.open[name]
		if !ok {
			o = Outage{Name: name, From: time.Duration(from)}
		}
		o.For += time.Duration(to - from)
		w.open[name] = o
		if o.For > w.longest.For {
			w.longest = o
		}
	}
}

// busy are the names that are held, and those of a set that waits for one of these: it may have the
// others already.
func (w *watcher) busy() map[string]bool {
	busy := map[string]bool{}
	for name, n := range w.holders {
		busy[name] = n > 0
	}
	for a := range w.asking {
		if slices.ContainsFunc(a.Names, func(name string) bool { return w.holders[name] > 0 }) {
			for _, name := range a.Names {
				busy[name] = true
			}
		}
	}
	return busy
}
