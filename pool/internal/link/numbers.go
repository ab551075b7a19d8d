package link

import "sync/atomic"

// The numbers of a node are the highest CLIENT ID of its connections to one server process. A process numbers its
// connections upwards, so a lower number for a later connection shows that the machine or the container of the
// process was restored from a snapshot: with the same run_id, the same record, and older keys. Only a client that
// had a connection from after the snapshot can see that; it deletes the record, which all clients see. Others may see
// that the record went back (package guard).
type numbers struct {
	last atomic.Pointer[number] // nil: there is none yet
}

// A number is a CLIENT ID, in the process that gave it.
type number struct {
	run    string // run_id; empty: none
	client int64
}

// known returns the highest number so far.
func (n *numbers) known() number {
	if last := n.last.Load(); last != nil {
		return *last
	}
	return number{}
}

// wentBack reports whether a connection has a number below one that was known before the connection was dialled.
func (known number) wentBack(run string, client int64) bool {
	return run != "" && run == known.run && client != 0 && client <= known.client
}

// enter notes the number of a new connection.
func (n *numbers) enter(run string, client int64) {
	for {
		last := n.last.Load()
		if last != nil && last.run == run && last.client >= client || n.last.CompareAndSwap(last, &number{run, client}) {
			return
		}
	}
}

// restart has the numbers of a restored process count from a connection.
func (n *numbers) restart(run string, client int64) { n.last.Store(&number{run, client}) }
