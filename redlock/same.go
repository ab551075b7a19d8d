package redlock

import "fmt"

// sameServer returns the node that has replied from the process run, or -1. The
// round must be locked.
func (r *round) sameServer(run string) int {
	if run == "" {
		return -1
	}
	for i := range r.slots { // by index: a slot is large, and this is done for each reply
		if r.slots[i].reply.Run == run {
			return i
		}
	}
	return -1
}

// disown is the reply of a server that has replied by another node already.
func disown(reply Reply, other Node) Reply {
	switch reply.Outcome {
	case Granted: // to the other node as well, if their databases differ: to be undone
		reply.Outcome = Unknown
	case Refused:
		reply.Outcome = Failed
	default:
		return reply
	}
	reply.Err = fmt.Errorf("%w: this is %s by another address or database", ErrSameServer, other)
	return reply
}
