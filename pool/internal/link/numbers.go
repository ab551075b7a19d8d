package link

import "sync/atomic"

// The numbers of a node are the highest CLIENT ID of its connections to one server process. A
// process numbers its connections upwards. A lower number for a later connection therefore shows
// that the machine or the container of the process was restored from a snapshot: with the same
// run_id, the same record, and older keys. Only a client that connected after the snapshot was
// taken can see that. It deletes the record, which all clients see. Other clients may see that the
// record went back (package guard).
type numbers struct {
	last atomic.Pointer[number] // nil before the first number
}

// A number is a CLIENT ID, with the process that assigned it.
type number struct {
	runID  string // empty: none
	client int64
}

// known returns the highest number by now.
func (n *numbers) known() number {
	if last := n.last.Load(); last != nil {
		return *last
	}
	return number{}
}

// wentBack reports whether a connection has a number no higher than the number known before it was
// dialled.
func (known number) wentBack(runID string, client int64) bool {
	return runID != "" && runID == known.runID && client != 0 && client <= known.client
}

// enter records the number of a new connection.
func (n *numbers) enter(runID string, client int64) {
	for {
		last := n.last.Load()
		if last != nil && last.runID == runID && last.client >= client || n.last.CompareAndSwap(last, &number{runID, client}) {
			return
		}
	}
}

// restart makes a connection the first one of a restored process.
func (n *numbers) restart(runID string, client int64) { n.last.Store(&number{runID, client}) }
