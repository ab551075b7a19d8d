package sim

import "time"

// An event is a function and when it is to run.
type event struct {
	at    time.Duration // since the timeline's origin
	order int
	f     func() // nil if it was dropped
	inner bool   // sets off nothing outside of the World, so nothing has to come to rest
}

// events is a heap, the next first. Package container/heap would take a sixth of
// all the simulation's time.
type events []*event

func (e *event) before(other *event) bool {
	return e.at < other.at || e.at == other.at && e.order < other.order
}

func (h *events) push(e *event) {
	*h = append(*h, e)
	all := *h
	i := len(all) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(all[parent]) {
			break
		}
		all[i] = all[parent]
		i = parent
	}
	all[i] = e
}

func (h *events) pop() *event {
	all := *h
	first, last := all[0], all[len(all)-1]
	all[len(all)-1] = nil
	all = all[:len(all)-1]
	*h = all
	for i := 0; len(all) > 0; {
		child := 2*i + 1
		if child+1 < len(all) && all[child+1].before(all[child]) {
			child++
		}
		if child >= len(all) || !all[child].before(last) {
			all[i] = last
			break
		}
		all[i] = all[child]
		i = child
	}
	return first
}
