package doctor

import (
	"fmt"
	"math"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/redlock"
)

// A reading is the time of a server's clock at a moment between two readings of our clock.
type reading struct{ sent, heard, clock time.Time }

func (r reading) trip() time.Duration { return r.heard.Sub(r.sent) }

// A rate bounds how much a server's clock gains on ours: 0.02 is two per cent.
type rate struct{ least, most float64 }

func (r rate) isFast() bool { return r.least > allowed }
func (r rate) isSlow() bool { return r.most < -allowed }

// allowed is the difference between the rates of two clocks that locks tolerate.
var allowed = (redlock.Drift(time.Second) - redlock.Drift(0)).Seconds()

// unknown is the rate of an unwatched clock.
var unknown = rate{math.Inf(-1), math.Inf(1)}

// rateBetween returns the rate between two readings. Its bounds hold for any network delays.
func rateBetween(first, last reading) rate {
	passed := last.clock.Sub(first.clock).Seconds()
	return rate{passed/last.heard.Sub(first.sent).Seconds() - 1, passed/last.sent.Sub(first.heard).Seconds() - 1}
}

// samples is the number of round trips: enough for a median that resists a slow answer, and few
// enough for a distant server.
const samples = 7

// readClock reads the server's clock. It uses the shortest of several round trips, because the
// server answered at an unknown moment between two readings of our clock. The reading is the zero
// value if the server does not answer TIME.
func readClock(c redis.Conn) (best reading, trips []time.Duration, err error) {
	for range samples {
		q := inspect.NewCommand("TIME")
		r := reading{sent: time.Now()}
		if err := inspect.Send(c, q); err != nil {
			return reading{}, nil, err
		}
		r.heard = time.Now()
		trips = append(trips, r.trip())
		ok := false
		if r.clock, ok = q.Time(); ok && (best.sent.IsZero() || r.trip() < best.trip()) {
			best = r
		}
	}
	return best, trips, nil
}

// Short returns d rounded for people.
func Short(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= 10*time.Second:
		return d.Round(time.Second)
	case d.Abs() >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func within(d time.Duration) string { return fmt.Sprintf(" (give or take %v)", Short(d)) }
