package doctor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/record"
)

// anew is the advice for a record that no client can use.
const anew = "stop all clients and run redlock reset"

// guard looks at the memory guard's record (package internal/record). Without the guard the clients
// do not read it.
func (v *visit) guard() {
	if !v.settings.Guard {
		return
	}
	key := v.epochKey()
	text, life := v.answers["GET "+key], v.answers["PTTL "+key]
	if strings.HasPrefix(string(text.err), "WRONGTYPE") {
		v.add(Finding{Fatal, checkEpoch, fmt.Sprintf("its key %q is not a string, so it has no epoch record", key), "without one the server has no vote", anew})
		return
	}
	for _, q := range []*question{text, life} {
		if q.redirected() { // identity did not notice, because INFO is not permitted
			v.inCluster(fmt.Sprintf("it is part of a Redis Cluster (%s)", q.err))
			return
		}
		if q.err != "" {
			v.add(Finding{Fatal, checkEpoch, fmt.Sprintf("its epoch record cannot be read (%s)", q.err), "without it the server has no vote", "permit GET and PTTL on " + key})
			return
		}
	}
	v.recordRead = true
	if text.value == nil {
		return
	}
	r, err := record.Parse(text.text())
	if err != nil {
		v.unreadable(text.text(), err)
		return
	}
	v.record = r
	v.recorded(r)
}

// now returns the time by the server's clock as a duration, as in records. A server that does not
// answer TIME is taken to agree with our clock.
func (v *visit) now() time.Duration {
	at := time.Now()
	if v.timing != nil {
		at = at.Add(v.timing.Offset)
	}
	return time.Duration(at.UnixMilli()) * time.Millisecond
}

// unreadable reports a record that this version cannot read.
func (v *visit) unreadable(text string, err error) {
	found, do := fmt.Sprintf("its epoch record %v: %.100q", err, text), anew
	if errors.Is(err, record.ErrVersion) {
		do = "use the version of the other clients, or " + anew
	}
	v.add(Finding{Fatal, checkEpoch, found, "clients of this version give it no vote", do})
}

// recorded checks a record that can be read.
func (v *visit) recorded(r *record.Record) {
	before, clock := len(v.findings), v.now()
	valid := v.valid(r)
	v.longTTLs(r, clock)
	v.recordValid, v.quarantined = valid, !valid
	if valid && r.Nodes == v.nodes && r.Groups == v.groups {
		v.quarantine(r, clock)
	}
	if !has(v.findings[before:], checkEpoch) {
		v.fine(checkEpoch, "its clients lock by %d nodes", r.Nodes)
	}
}

// valid reports whether the record is of what this process and data set remember, as far as the
// server tells its identity.
func (v *visit) valid(r *record.Record) bool {
	const until = "from the next client on it has no vote until all locks that it may have forgotten have expired"
	run, _, _ := strings.Cut(r.Run, "/")
	told := v.info("replication")
	dataSet := record.DataSet(told["master_replid"], told["second_repl_offset"],
		v.info("stats")["total_net_repl_input_bytes"], v.answers["GET "+record.PrimaryKey].text())
	if dataSet != "" {
		dataSet = record.InCluster(dataSet, v.answers["CLUSTER INFO"].fields()["cluster_my_epoch"])
	}
	isKnown := r.Run != record.Unknown && v.runID != ""
	left, _ := number(v.answers["PTTL "+v.epochKey()].value)
	switch {
	case r.Groups != v.groups:
		v.add(Finding{Fatal, checkEpoch, "its clients name other groups or servers",
			"they may hold locks that clients with these servers do not see, so these clients get no vote from it",
			"use the same groups, or none, and the same addresses in all clients; or " + anew})
	case r.Nodes != v.nodes:
		v.add(Finding{Fatal, checkEpoch, fmt.Sprintf("its clients lock by %d nodes, and here are %d", r.Nodes, v.nodes),
			"two such quorums need not overlap, so clients with these nodes get no vote from it",
			"use the same nodes in all clients, or " + anew})
	case isKnown && run != v.runID:
		v.add(Finding{Warning, checkEpoch, "it has been restarted since its epoch record was written", until, ""})
		return false
	case isKnown && dataSet != "" && !r.IsOf(v.runID+"/"+dataSet):
		v.add(Finding{Warning, checkEpoch, "its data set was replaced since its epoch record was written",
			"there was a failover and one back, or a slot of its cluster moved to it; or its first replica or a backup (redis-cli --rdb) was attached, or all replicas were gone for repl-backlog-ttl, which looks like a failover: " + until, ""})

		return false
	case left < 0:
		v.add(Finding{Warning, checkEpoch, "the TTL was taken from its epoch record", until, ""})
		return false
	}
	return true
}

// longestTTL is the longest that a client accepts for a lock.
const longestTTL = 365 * 24 * time.Hour

// longTTLs checks the TTLs on record. Other servers wait for the longest of them when they have
// forgotten.
func (v *visit) longTTLs(r *record.Record, clock time.Duration) {
	long := record.Step{TTL: v.settings.MaxTTL}
	most := r.Forgot
	for _, s := range r.Steps {
		most = max(most, s.TTL)
		if s.Until() >= clock && s.TTL > long.TTL {
			long = s
		}
	}
	switch {
	case most > longestTTL:
		v.add(Finding{Warning, checkEpoch, fmt.Sprintf("its epoch record has locks with a TTL of %v", most),
			"no client takes such locks, so the record is damaged or hostile; where a majority of servers has forgotten, clients believe one such record up to ten times their TTL, and several as they are", anew})
	case r.Born > clock+tokenSlack:
		v.add(Finding{Warning, checkEpoch, fmt.Sprintf("its epoch record begins in %v", Short(r.Born-clock)),
			"its clock was set back, or the record is damaged: it has no vote for fenced locks until then, and locks that it holds last longer", "set its clock; if it is right, " + anew})
	case long.TTL > v.settings.MaxTTL:
		v.add(Finding{Note, checkEpoch, fmt.Sprintf("locks with a TTL of %v are on record, longer than ours of %v", long.TTL, v.settings.MaxTTL),
			fmt.Sprintf("servers that forget have no vote for that long, until this fades in %v, if no client takes such a lock again", Short(long.Until()-clock)), ""})
	}
}

// shortest returns the shortest TTL of locks that clients take: to such a client the server votes first.
func (v *visit) shortest(r *record.Record, clock time.Duration) time.Duration {
	ttl := v.settings.MaxTTL
	for _, s := range r.Steps {
		if s.Until() >= clock {
			ttl = min(ttl, s.TTL)
		}
	}
	return ttl
}

// quarantine reports whether the server has a vote, or when it will.
func (v *visit) quarantine(r *record.Record, clock time.Duration) {
	const why = "it is new, or was restarted or flushed, and may have forgotten locks: it has no vote until then"
	left := r.Quarantine(clock, v.settings.MaxTTL)
	switch {
	case left > 0:
		basis := "these can have a TTL of " + max(r.Forgot, v.settings.MaxTTL).String() + ", because the records of the other servers show no shorter one"
		if shorter := v.shortest(r, clock); r.Quarantine(clock, shorter) == 0 {
			basis += fmt.Sprintf("; clients that know of no TTL above %v have it already", shorter)
		}
		if r.Basis == record.Proof {
			basis = "these can have a TTL of " + r.Forgot.String() + ", by the records of the other servers"
		}
		v.add(Finding{Warning, checkQuarantine, fmt.Sprintf("it is in quarantine for another %v", Short(left)), why + "; " + basis,
			"wait; or, if no client holds a lock that it may have forgotten, " + anew})

		v.quarantined = r.Quarantine(clock, v.shortest(r, clock)) > 0
	case r.Basis == record.Open:
		v.add(Finding{Note, checkQuarantine, "its quarantine is over, but not all other servers have been asked what it may have forgotten",
			fmt.Sprintf("each new client waits once for %v before it counts the vote, unless the others answer", v.settings.MaxTTL), ""})
	default:
		v.fine(checkQuarantine, "it is not in quarantine")
	}
}
