package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/record"
)

// compare judges what shows only when the servers are compared. What concerns one of them is added
// to its findings.
func compare(visits []*visit) (together []Finding) {
	together = append(together, count(len(visits)))
	q := len(visits)/2 + 1
	if n := answered(visits); n < q {
		together = append(together, Finding{Fatal, checkReach, fmt.Sprintf("%d of %d servers answered, and %d are needed", n, len(visits), q), "no lock can be taken", "see above why the others did not answer"})
	}
	newcomers(visits)
	together = append(together, rates(visits)...)
	together = append(together, commonTime(visits)...)
	if n := voters(visits); n < q && answered(visits) >= q {
		together = append(together, Finding{Fatal, checkQuarantine, fmt.Sprintf("%d of %d servers have a vote, and %d are needed", n, len(visits), q), "no lock can be taken", "see the findings of the other servers, and whether they end by themselves"})
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
		return Finding{Warning, checkNodes, "there is one server", "when it fails, no lock can be taken, and a failover costs a TTL without a lock", do}
	case n == 2:
		return Finding{Warning, checkNodes, "there are two servers, and both are needed", "when either fails, no lock can be taken", do}
	case n%2 == 0:
		return Finding{Note, checkNodes, fmt.Sprintf("there are %d servers, an even number", n), fmt.Sprintf("no more of them may fail than of %d", n-1), "use an odd number"}
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
				case a.runID == "" || a.runID != b.runID:
				case i >= others:
					a.add(Finding{Fatal, checkSame, "it is the same server as " + b.server.Name, "one server must not vote twice: it has one vote of the two", "use another server in its place"})
				default:
					a.add(Finding{Warning, checkSame, "it is the same server as " + b.server.Name + ", of another group", "it has a vote in one of the groups only",
						"use another server in its place"})
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
			v.add(Finding{Note, checkEpoch, "no client with the memory guard has used it yet", "the first client waits for one longest TTL, once, until it has a vote", ""})
		} else {
			v.add(Finding{Warning, checkEpoch, "it has no epoch record, and others have", "it is new or was flushed: from the next client on it has no vote until all locks that it may have forgotten have expired", ""})
		}
	}
}

func has(findings []Finding, check string) bool {
	for _, f := range findings {
		if f.Check == check {
			return true
		}
	}
	return false
}

// tokenSlack is how far a fencing token may be from a server's clock: TokenSlack of
// redlock/internal/guard.
const tokenSlack = 2 * time.Second

// clocks compares the servers' clocks for the sake of fencing tokens. Clients propose readings of their own clock, of which a server accepts those
// within tokenSlack of its own; a second round makes up for more, up to four times that between
// two servers.
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
			v.add(Finding{Warning, checkClock, found, fmt.Sprintf("fenced locks need a second round for clocks over %v apart", tokenSlack), "run NTP on both machines, and let it slew, not step"})
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
			fmt.Sprintf("beyond %v they cannot agree on a fencing token", 4*tokenSlack), "run NTP on the servers, and let it slew, not step"}}
	}
	return []Finding{{OK, checkClock, fmt.Sprintf("the servers' clocks are at most %v apart", Short(apart+unsure)), "", ""}}
}

// commonTime compares the servers' clocks as the memory guard does: less what they were off when the records were
// written. A server's vote counts only while a quorum of clocks agrees with its own.
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
				"no lock can be taken: nothing shows which clock is right", "set the servers' clocks, or start the servers that are down"}}
		}
		return nil
	}
	for _, v := range apart {
		d, word := v.commonTime()-at, "ahead of"
		if d < 0 {
			word = "behind"
		}
		v.quarantined = true
		v.add(Finding{Warning, checkClock, fmt.Sprintf("its clock was set: since its epoch record was written it is %v %s the other servers'", Short(d.Abs()), word),
			"it has no vote; from the next client on it has none until all locks that may have expired early have expired",
			"set its clock now if it is wrong, and always start Redis after the clock is set"})
	}
	return nil
}

// commonTime is how far the server's clock is ahead of ours, less what it was off when its record was written.
func (v *visit) commonTime() time.Duration { return v.timing.Offset - v.record.Off }

func within(d time.Duration) string { return fmt.Sprintf(" (give or take %v)", Short(d)) }
