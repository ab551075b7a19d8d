package doctor

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/record"
)

// compare compares the servers. It returns the findings about all of them, and adds findings about
// a single server to that server.
func compare(visits []*visit) (together []Finding) {
	together = append(together, count(len(visits)))
	q := len(visits)/2 + 1
	if n := answered(visits); n < q {
		together = append(together, Finding{Fatal, CheckReachable, fmt.Sprintf("%d of %d servers answered, and %d are needed", n, len(visits), q), "no lock can be taken", "see above why the other servers did not answer"})
	}
	newcomers(visits)
	together = append(together, rates(visits)...)
	together = append(together, commonTime(visits)...)
	if n := voters(visits); n < q && answered(visits) >= q {
		together = append(together, Finding{Fatal, CheckQuarantine, fmt.Sprintf("%d of %d servers have a vote, and %d are needed", n, len(visits), q), "no lock can be taken", "check the findings of the other servers: some resolve by themselves"})
	}
	return append(together, clocks(visits)...)
}

func answered(visits []*visit) (n int) {
	for _, v := range visits {
		if v.answered {
			n++
		}
	}
	return n
}

// voters counts the servers that could vote now.
func voters(visits []*visit) (n int) {
	for _, v := range visits {
		if v.answered && !v.quarantined && worst(v.findings) < Fatal {
			n++
		}
	}
	return n
}

func count(n int) Finding {
	const do = "use 3 or 5 servers"
	switch {
	case n == 1:
		return Finding{Warning, checkNodes, "there is one server", "if it fails, no lock can be taken; after a failover no lock can be taken for one TTL", do}
	case n == 2:
		return Finding{Warning, checkNodes, "there are two servers, and both are needed", "if either fails, no lock can be taken", do}
	case n%2 == 0:
		return Finding{Note, checkNodes, fmt.Sprintf("there are %d servers, an even number", n), fmt.Sprintf("they survive no more failures than %d servers", n-1), "use an odd number"}
	}
	return Finding{OK, checkNodes, fmt.Sprintf("there are %d servers, and %d may fail", n, (n-1)/2), "", ""}
}

// sameServers finds servers that are one process, in one set or in several.
func sameServers(sets [][]*visit) {
	var before []*visit
	for _, set := range sets {
		others := len(before)
		for _, a := range set {
			for i, b := range before {
				switch {
				case a.Who.RunID == "" || a.Who.RunID != b.Who.RunID:
				case i >= others:
					a.add(Finding{Fatal, checkSame, "it is the same server as " + b.server.Name, "a server must not vote twice: only one of the two nodes has a vote", "replace it by another server"})
				default:
					a.add(Finding{Warning, checkSame, "it is the same server as " + b.server.Name + ", of another group", "it votes in only one of the groups",
						"replace it by another server"})
				}
			}
			before = append(before, a)
		}
	}
}

// newcomers reports servers without an epoch record. That is only a note if no server has one,
// because then no lock was taken yet.
func newcomers(visits []*visit) {
	others := 0
	for _, v := range visits {
		if v.record != nil {
			others++
		}
	}
	for _, v := range visits {
		if !v.recordRead || v.record != nil || worst(v.findings) == Fatal && has(v.findings, checkEpoch) {
			continue
		}
		if others == 0 {
			v.add(Finding{Note, checkEpoch, "no client with the memory guard has used it yet", "it has no vote until the first client has waited for the longest TTL, once", ""})
		} else {
			v.add(Finding{Warning, checkEpoch, "it has no epoch record, but other servers do", "it is new or was flushed: the next lock request starts a quarantine, without a vote, until all locks that it may have forgotten have expired", ""})
		}
	}
}

// clocks compares the servers' clocks because of fencing tokens. Clients propose readings of their
// own clock, and a server accepts readings within tokenSlack of its clock. A second round
// compensates for greater differences, up to four times tokenSlack between two servers.
func clocks(visits []*visit) []Finding {
	var first, last *visit
	for _, v := range visits {
		if v.timing == nil {
			continue
		}
		offset, uncertainty := v.timing.Offset, v.timing.Uncertainty
		found := "its clock agrees with ours" + within(uncertainty)
		if offset.Abs() > uncertainty {
			word := "ahead of"
			if offset < 0 {
				word = "behind"
			}
			found = fmt.Sprintf("its clock is %v %s ours%s", Short(offset.Abs()), word, within(uncertainty))
		}
		if offset.Abs()-uncertainty > tokenSlack {
			v.add(Finding{Warning, checkClock, found, fmt.Sprintf("fenced locks need a second round if clocks differ by more than %v", tokenSlack), "run NTP on both machines, and make it slew, not step"})
		} else {
			v.fine(checkClock, "%s", found)
		}
		if first == nil || offset < first.timing.Offset {
			first = v
		}
		if last == nil || offset > last.timing.Offset {
			last = v
		}
	}
	if first == nil || first == last {
		return nil
	}
	apart := last.timing.Offset - first.timing.Offset
	unsure := last.timing.Uncertainty + first.timing.Uncertainty
	if apart-unsure > 4*tokenSlack {
		return []Finding{{Warning, checkClock, fmt.Sprintf("the clocks of %s and %s are %v apart", first.server.Name, last.server.Name, Short(apart)),
			fmt.Sprintf("servers whose clocks differ by more than %v cannot agree on a fencing token", 4*tokenSlack), "run NTP on the servers, and make it slew, not step"}}
	}
	return []Finding{{OK, checkClock, fmt.Sprintf("the servers' clocks are at most %v apart", Short(apart+unsure)), "", ""}}
}

// commonTime compares the servers' clocks as the memory guard does: minus their offsets at the time
// when the records were written. A server's vote counts only while a quorum of clocks agrees with
// its own.
func commonTime(visits []*visit) []Finding {
	var known []*visit
	var times []time.Duration
	for _, v := range visits {
		if v.timing != nil && v.recordValid {
			known = append(known, v)
			times = append(times, v.commonTime())
		}
	}
	if len(visits) == 1 || len(known) == 0 {
		return nil
	}
	slices.Sort(times)
	at, agree := times[(len(times)-1)/2], 0
	var apart []*visit
	for _, v := range known {
		if d := (v.commonTime() - at).Abs(); d <= record.Apart+v.timing.Uncertainty {
			agree++
		} else {
			apart = append(apart, v)
		}
	}
	if q := len(visits)/2 + 1; agree < q {
		if len(known) >= q {
			return []Finding{{Fatal, checkClock, fmt.Sprintf("the clocks of %d of %d servers agree, and %d are needed", agree, len(visits), q),
				"no lock can be taken, because no majority shows which clock is right", "set the servers' clocks, or start the servers that are down"}}
		}
		return nil
	}
	for _, v := range apart {
		d, word := v.commonTime()-at, "ahead of"
		if d < 0 {
			word = "behind"
		}
		v.quarantined = true
		v.add(Finding{Warning, checkClock, fmt.Sprintf("its clock was set after its epoch record was written, and is now %v %s the other servers' clocks", Short(d.Abs()), word),
			"it has no vote; the next lock request starts a quarantine, until all locks that it may have dropped early have expired",
			"correct its clock if it is wrong, and always set the clock before Redis starts"})
	}
	return nil
}

// commonTime returns the lead of the server's clock over ours, minus its offset at the time when
// its record was written.
func (v *visit) commonTime() time.Duration { return v.timing.Offset - v.record.Off }

// rates judges clocks that run faster or slower than ours by more than locks tolerate. If most of
// the servers agree with each other, our clock is wrong.
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
	const do = "repair the clock of this machine (NTP; on a virtual machine the host and the clock source); use another machine until then"
	if by, isOurs := common(fast, len(visits)); isOurs {
		found := fmt.Sprintf("this machine's clock runs %s slower than the clocks of %s", by, share(fast, visits))
		if !visits[0].settings.Guard {
			return []Finding{{Fatal, checkClock, found, "locks of this machine expire before it notices, so two clients can hold one lock", do}}
		}
		return []Finding{{Fatal, checkClock, found, "this machine gets no lock or loses it at once, because the servers' clocks seem to jump ahead repeatedly", do}}
	}
	for _, v := range fast {
		against := 1 // clocks, with ours
		for _, other := range visits {
			if other.rate.most < v.rate.least {
				against++
			}
		}
		if 2*against < len(visits)+1 {
			continue // the clock may run like the others
		}
		by, _ := common([]*visit{v}, 1)
		v.add(Finding{Fatal, checkClock, fmt.Sprintf("its clock runs %s faster than this machine's", by), "it has no vote: its keys expire early", "repair its clock, or this machine's clock if that is the wrong one"})
	}
	if by, isOurs := common(slow, len(visits)); isOurs {
		return []Finding{{Warning, checkClock, fmt.Sprintf("this machine's clock runs %s faster than the clocks of %s", by, share(slow, visits)),
			"locks end early here, and this machine does not wait long enough for forgotten locks, which another client can still hold", do}}
	}
	return nil
}

// common returns the difference between the clocks of some servers and ours, and whether these servers are most
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
