package doctor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/internal/record"
)

// tokenSlack is the maximum distance of a fencing token from a server's clock: TokenSlack of
// redlock/internal/guard.
const tokenSlack = 2 * time.Second

// resetAdvice is the advice for a record that no client can use.
const resetAdvice = "stop all clients and run redlock reset"

// guard looks at the memory guard's record (package internal/record). Without the guard the clients
// do not read it.
func (v *visit) guard() {
	if !v.settings.Guard {
		return
	}
	key := v.epochKey()
	text, life := v.Answer("GET "+key), v.Answer("PTTL "+key)
	if strings.HasPrefix(string(text.Err), "WRONGTYPE") {
		v.add(Finding{Fatal, checkEpoch, fmt.Sprintf("its key %q is not a string, so it has no epoch record", key), "without an epoch record the server has no vote", resetAdvice})
		return
	}
	for _, q := range []*inspect.Command{text, life} {
		if redirected(q) { // identity did not notice, because INFO is not permitted
			v.inCluster(fmt.Sprintf("it is part of a Redis Cluster (%s)", q.Err))
			return
		}
		if q.Err != "" {
			v.add(Finding{Fatal, checkEpoch, fmt.Sprintf("its epoch record cannot be read (%s)", q.Err), "without its epoch record the server has no vote", "permit GET and PTTL on " + key})
			return
		}
	}
	v.recordRead = true
	if text.Value == nil {
		return
	}
	r, err := record.Parse(text.Text())
	if err != nil {
		v.unreadable(text.Text(), err)
		return
	}
	v.record = r
	v.recorded(r)
}

// now returns the time of the server's clock as a duration, as in records. If the server does not
// answer TIME, now assumes that its clock agrees with ours.
func (v *visit) now() time.Duration {
	at := time.Now()
	if v.timing != nil {
		at = at.Add(v.timing.Offset)
	}
	return time.Duration(at.UnixMilli()) * time.Millisecond
}

// unreadable reports a record that this version cannot read.
func (v *visit) unreadable(text string, err error) {
	found, do := fmt.Sprintf("its epoch record %v: %.100q", err, text), resetAdvice
	if errors.Is(err, record.ErrVersion) {
		do = "use the version of the other clients, or " + resetAdvice
	}
	v.add(Finding{Fatal, checkEpoch, found, "clients of this version do not count its vote", do})
}

// recorded checks a readable record.
func (v *visit) recorded(r *record.Record) {
	before, clock := len(v.findings), v.now()
	valid := v.valid(r)
	v.longTTLs(r, clock)
	v.recordValid, v.quarantined = valid, !valid
	if valid && r.Nodes == v.nodes && r.Groups == v.groups {
		v.quarantine(r, clock)
	}
	if !has(v.findings[before:], checkEpoch) {
		v.fine(checkEpoch, "its clients use %d nodes", r.Nodes)
	}
}

// valid reports whether the record belongs to this process and data set. Parts of its identity that
// the server hides are not compared.
func (v *visit) valid(r *record.Record) bool {
	const until = "the next lock request starts a quarantine, without a vote, until all locks that it may have forgotten have expired"
	run, _, _ := strings.Cut(r.Run, "/")
	isKnown := r.Run != record.Unknown && v.Who.RunID != ""
	left, _ := redis.Int64(v.Answer("PTTL " + v.epochKey()).Answer())
	switch {
	case r.Groups != v.groups:
		v.add(Finding{Fatal, checkEpoch, "its clients use other groups or servers",
			"its clients may hold locks that clients of this list do not see, so it has no vote for this list",
			"use the same groups (or none) and the same addresses in all clients, or " + resetAdvice})
	case r.Nodes != v.nodes:
		v.add(Finding{Fatal, checkEpoch, fmt.Sprintf("its clients use %d nodes, but this list has %d", r.Nodes, v.nodes),
			"the two quorums may not overlap, so it has no vote for this list",
			"use the same nodes in all clients, or " + resetAdvice})
	case isKnown && run != v.Who.RunID:
		v.add(Finding{Warning, checkEpoch, "it was restarted after its epoch record was written", until, ""})
		return false
	case isKnown && v.Who.Replication.ID != "" && !r.IsOf(v.Who.Identity()):
		v.add(Finding{Warning, checkEpoch, "its data set was replaced after its epoch record was written",
			"it failed over and back, or a slot of its cluster moved to it; a first replica, a backup (redis-cli --rdb) or repl-backlog-ttl without replicas looks the same: " + until, ""})

		return false
	case left < 0:
		v.add(Finding{Warning, checkEpoch, "the TTL of its epoch record was removed", until, ""})
		return false
	}
	return true
}

// longestTTL is the longest TTL that a client accepts.
const longestTTL = 365 * 24 * time.Hour

// longTTLs checks the TTLs on record. Another server that has forgotten its locks waits for the
// longest of them.
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
		v.add(Finding{Warning, checkEpoch, fmt.Sprintf("its epoch record names a TTL of %v", most),
			"no client accepts such a TTL, so the record is damaged or hostile; if a majority of servers has lost its data, clients trust one such record up to ten times their own TTL, and several such records in full", resetAdvice})
	case r.Born > clock+tokenSlack:
		v.add(Finding{Warning, checkEpoch, fmt.Sprintf("its epoch record begins %v in the future", Short(r.Born-clock)),
			"its clock was set back, or the record is damaged: until then it has no vote for fenced locks, and its locks last longer", "correct its clock; if the clock is right, " + resetAdvice})
	case long.TTL > v.settings.MaxTTL:
		v.add(Finding{Note, checkEpoch, fmt.Sprintf("its epoch record has locks with a TTL of %v, longer than our --max-ttl of %v", long.TTL, v.settings.MaxTTL),
			fmt.Sprintf("a server that forgets has no vote for that long; the entry expires in %v unless a client takes such a lock again", Short(long.Until()-clock)), ""})
	}
}

// shortest returns the shortest TTL of current locks. For clients with this TTL, the quarantine
// ends first.
func (v *visit) shortest(r *record.Record, clock time.Duration) time.Duration {
	ttl := v.settings.MaxTTL
	for _, s := range r.Steps {
		if s.Until() >= clock {
			ttl = min(ttl, s.TTL)
		}
	}
	return ttl
}

// quarantine reports whether the server is in quarantine, and for how long.
func (v *visit) quarantine(r *record.Record, clock time.Duration) {
	const why = "it is new, was restarted or was flushed, and may have forgotten locks: until then it has no vote"
	left := r.Quarantine(clock, v.settings.MaxTTL)
	switch {
	case left > 0:
		basis := "forgotten locks can have a TTL of " + max(r.Forgot, v.settings.MaxTTL).String() + ", because the records of the other servers show no shorter limit"
		if shorter := v.shortest(r, clock); r.Quarantine(clock, shorter) == 0 {
			basis += fmt.Sprintf("; clients that have seen no TTL above %v already count its vote", shorter)
		}
		if r.Basis == record.Proof {
			basis = "forgotten locks can have a TTL of " + r.Forgot.String() + ", according to the records of the other servers"
		}
		v.add(Finding{Warning, CheckQuarantine, fmt.Sprintf("it is in quarantine for another %v", Short(left)), why + "; " + basis,
			"wait, or if no client can hold a forgotten lock, " + resetAdvice})

		v.quarantined = r.Quarantine(clock, v.shortest(r, clock)) > 0
	case r.Basis == record.Open:
		v.add(Finding{Note, CheckQuarantine, "its quarantine has ended, but some other servers were not asked about forgotten locks",
			fmt.Sprintf("each new client waits once for %v before it counts the vote, unless the other servers answer", v.settings.MaxTTL), ""})
	default:
		v.fine(CheckQuarantine, "it is not in quarantine")
	}
}
