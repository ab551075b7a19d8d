package doctor

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A server's clock is watched for as long as it takes to tell a difference of two per cent from the
// time that readings are under way, or for as long as is reasonable.
const (
	shortWatch = 50 * time.Millisecond
	longWatch  = 500 * time.Millisecond
	tripsWatch = 150 // round trips
)

// A reading is what a server's clock has shown at some moment between two of ours.
type reading struct{ sent, heard, clock time.Time }

func (r reading) trip() time.Duration { return r.heard.Sub(r.sent) }

// A rate bounds how much a server's clock gains on ours: 0.02 is two per cent.
type rate struct{ least, most float64 }

func (r rate) isFast() bool { return r.least > allowed }
func (r rate) isSlow() bool { return r.most < -allowed }

// allowed is by how much the rates of two clocks may differ, as locks allow for.
var allowed = (redlock.Drift(time.Second) - redlock.Drift(0)).Seconds()

// unknown is the rate of a clock that was not watched.
var unknown = rate{math.Inf(-1), math.Inf(1)}

// rateBetween returns what two readings tell: no more than is certain, whatever the network did to
// them.
func rateBetween(first, last reading) rate {
	passed := last.clock.Sub(first.clock).Seconds()
	return rate{passed/last.heard.Sub(first.sent).Seconds() - 1, passed/last.sent.Sub(first.heard).Seconds() - 1}
}

// watch reads the server's clock once more, so long after latency did that the rates can be compared.
func (v *visit) watch(ctx context.Context) error {
	if v.timing == nil {
		return nil
	}
	first, longest := v.clock, min(longWatch, v.settings.Timeout/4)
	for d := min(max(shortWatch, tripsWatch*first.trip()), longest); ; d = longest {
		select {
		case <-time.After(time.Until(first.heard.Add(d))):
		case <-ctx.Done():
		}
		last, _, err := v.readClock()
		if err != nil || last.sent.IsZero() {
			return err
		}
		// A server that reads its clock once in a while only seems fast or slow for a moment.
		v.rate = rateBetween(first, last)
		if d == longest || !v.rate.isFast() && !v.rate.isSlow() {
			return nil
		}
	}
}

// rates judges clocks that run faster or slower than ours by more than locks allow for. If most of
// the servers agree on that, ours is the one that is wrong.
func rates(visits []*visit) []Finding {
	var fast, slow []*visit
	for _, v := range visits {
		switch {
		case v.rate.isFast():
			fast = append(fast, v)
		case v.rate.isSlow():
			slow = append(slow, v)
		}
	}
	const do = "repair the clock of this machine (NTP; on a virtual machine the host and the clock source), and use another machine until then"
	if by, isOurs := common(fast, len(visits)); isOurs {
		found := fmt.Sprintf("this machine's clock runs %s slower than those of %s", by, share(fast, visits))
		if !visits[0].settings.Guard {
			return []Finding{{Fatal, checkClock, found, "its locks expire before it knows, and two clients can hold one", do}}
		}
		return []Finding{{Fatal, checkClock, found, "this machine gets no lock, or loses it at once: to it, the clocks of the servers seem to jump ahead again and again", do}}
	}
	for _, v := range fast {
		against := 1 // clocks, with ours
		for _, other := range visits {
			if other.rate.most < v.rate.least {
				against++
			}
		}
		if 2*against < len(visits)+1 {
			continue // it may be as the others are
		}
		by, _ := common([]*visit{v}, 1)
		v.add(Finding{Fatal, checkClock, fmt.Sprintf("its clock runs %s faster than this machine's", by), "it has no vote: its keys expire early", "repair its clock, or the clock of this machine if that one is wrong"})
	}
	if by, isOurs := common(slow, len(visits)); isOurs {
		return []Finding{{Warning, checkClock, fmt.Sprintf("this machine's clock runs %s faster than those of %s", by, share(slow, visits)),
			"its locks end early, and it waits too briefly for locks that a server may have forgotten, which another client can still hold", do}}
	}
	return nil
}

// common returns by how much the clocks of some servers differ from ours, and whether they are most
// of n and agree on it.
func common(some []*visit, n int) (by string, isOurs bool) {
	r := unknown
	for _, v := range some {
		r.least, r.most = max(r.least, v.rate.least), min(r.most, v.rate.most)
	}
	gain := (r.least + r.most) / 2
	percent := math.Round(1000*math.Abs(gain/(1+gain))) / 10
	return strconv.FormatFloat(percent, 'f', -1, 64) + " %", len(some) > 1 && len(some) > n/2 && r.least-r.most <= allowed
}

func share(some, all []*visit) string {
	if len(some) == len(all) {
		return fmt.Sprintf("all %d servers", len(all))
	}
	return fmt.Sprintf("%d of %d servers", len(some), len(all))
}
