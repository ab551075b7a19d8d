package serve

import "time"

// margin is taken off what a client is told, for its work to end: the same as "redlock hold" leaves.
func margin(ttl time.Duration) time.Duration { return max(ttl/10, 100*time.Millisecond) }

// drift is by how much two clocks of machines may differ after a time: one part in a thousand, twice
// what NTP may slew.
func drift(over time.Duration) time.Duration { return over / 1000 }

// validFor returns for how long after it sent its request a client may work under a lease: until the
// lock ends, or the session, which lasts for its TTL from now on at least, or until the server ends. The
// request is from a client that waited for the answer since it sent it: since is for how long the server
// has had it.
func validFor(lease term, since time.Duration) time.Duration {
	left := min(lease.left, lease.session) - margin(lease.ttl)
	if left <= 0 {
		return 0
	}
	return since + left - drift(since)
}

// A term is what is known of a lease's end.
type term struct {
	left    time.Duration // of the lock's validity
	ttl     time.Duration // of the lock
	session time.Duration // its TTL, or until the server ends
}

// validFor returns for how long after it sent the request the client may work under a lease.
func (r *request) validFor(l *lease) int64 {
	since := time.Since(r.since) // first: this process may be stopped between the two
	t := term{left: l.lock.Remaining(), ttl: millis(l.granted.TTL), session: l.session.table.left(l.session.ttl)}
	return validFor(t, since).Milliseconds()
}
