package link

import (
	"context"
	"math/rand/v2"
	"time"
)

// The waits between attempts to connect: see backoffAfter.
const (
	firstBackoff = 10 * time.Millisecond
	maxBackoff   = time.Second
)

// A connection describes a connection that has ended. The zero value describes a failure to
// connect.
type connection struct {
	lasted time.Duration
	worked bool  // the server answered on it after the handshake
	err    error // reason of its end
}

// backoffAfter returns the wait before the next attempt to connect. The wait is short after a
// connection that worked until it was cut, because the server is there. After any other connection
// that did not last, because it never worked or because the server's answers ended it, the wait is
// twice the previous one.
func backoffAfter(c connection, before time.Duration) time.Duration {
	switch {
	case c.lasted > maxBackoff:
		return 0
	case c.worked && IsHangUp(c.err):
		return firstBackoff
	}
	return min(max(firstBackoff, 2*before), maxBackoff)
}

// sleep waits for at most d. Half of d is random, so that not all clients of a server that returns
// connect at once. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d/2 + rand.N(d/2+1))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
