package quorum

import "time"

// Drift returns how much of a TTL is never used, because the clocks of client
// and servers run at different rates and Redis expires keys with a resolution
// of milliseconds: one per cent and 2 ms, as the Redis documentation's
// reference implementations have it
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Deadline returns when a lock must be considered gone, if a quorum of nodes
// began to count ttl no earlier than start. start is read before the first
// byte of the request is queued, so the time that the votes took is used up.
func Deadline[I ~int64](start I, ttl time.Duration) I { return start + I(ttl-Drift(ttl)) }
