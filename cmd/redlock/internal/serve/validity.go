package serve

import "time"

// margin is subtracted from a promise, so that the client can end its work. "redlock hold" uses the
// same margin.
func margin(ttl time.Duration) time.Duration { return max(ttl/10, 100*time.Millisecond) }

// drift is the difference of two machines' clocks after a time: one part in a thousand, twice the
// greatest slew of NTP.
func drift(over time.Duration) time.Duration { return over / 1000 }

// validFor returns the time for which a client may work under a lease, counted from the sending of
// its request. The time ends with the lock, with the server, or with the session, which lasts for
// at least its TTL from now on. since is the time since the request arrived. The client must have
// waited for the answer during that time.
func validFor(lease term, since time.Duration) time.Duration {
	left := min(lease.left, lease.session) - margin(lease.ttl)
	if left <= 0 {
		return 0
	}
	return since + left - drift(since)
}

// A term has the limits of a lease.
type term struct {
	left    time.Duration // remaining validity of the lock
	ttl     time.Duration // TTL of the lock
	session time.Duration // TTL of the session, or time until the server ends
}
