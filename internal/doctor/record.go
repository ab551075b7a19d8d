package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The keys of the memory guard, behind the prefix.
const (
	epochKey      = "redlock:epoch"
	quarantineKey = "redlock:quarantine"
)

// A record is the epoch record on a server: see package pool's epoch.go.
type record struct {
	run    string // "-": was not told
	nodes  int
	maxTTL time.Duration
}

func parseRecord(text string) (*record, bool) {
	f := strings.Fields(text)
	if len(f) != 6 || f[0] != "1" {
		return nil, false
	}
	nodes, err := strconv.Atoi(f[3])
	ms, err2 := strconv.ParseInt(f[4], 10, 64)
	return &record{run: f[1], nodes: nodes, maxTTL: time.Duration(ms) * time.Millisecond}, err == nil && err2 == nil
}

// guard looks at what the memory guard has on record. Without the guard nobody
// reads it.
func (v *visit) guard() error {
	if !v.settings.Guard {
		return nil
	}
	epoch, life := newQuestion("GET", v.settings.Prefix+epochKey), newQuestion("PTTL", v.settings.Prefix+epochKey)
	quarantine := newQuestion("PTTL", v.settings.Prefix+quarantineKey)
	if err := v.ask(epoch, life, quarantine); err != nil {
		return err
	}
	for _, q := range []*question{epoch, life, quarantine} {
		if q.err == "" {
			continue
		}
		v.add(Fatal, checkEpoch, fmt.Sprintf("its epoch record cannot be read (%s)", q.err), "without it the server has no vote", "permit GET and PTTL on "+v.settings.Prefix+"redlock:*")
		return nil
	}
	v.facts.recordRead = true
	if epoch.value != nil {
		v.epoch(epoch.text(), life)
	}
	v.quarantine(quarantine)
	return nil
}

func (v *visit) epoch(text string, life *question) {
	r, ok := parseRecord(text)
	if !ok {
		v.add(Fatal, checkEpoch, fmt.Sprintf("its epoch record is %.100q", text), "this version does not understand it, and the server has no vote", "was it written by a newer version? use that")
		return
	}
	v.facts.record = r
	left, _ := number(life.value)
	key := v.settings.Prefix + epochKey
	switch {
	case r.nodes != v.nodes:
		v.add(Fatal, checkEpoch, fmt.Sprintf("its clients lock by %d nodes, and here are %d", r.nodes, v.nodes),
			"two such quorums need not meet, so it gives clients with these nodes no vote",
			fmt.Sprintf("give all clients the same nodes, or stop them all and delete the key %q on every node", key))
	case r.run != "-" && v.facts.runID != "" && r.run != v.facts.runID:
		v.add(Warning, checkEpoch, "it has been restarted since its epoch record was written", fmt.Sprintf("the next client finds that and gives it no vote for up to %v", r.maxTTL), "")
	case left < 0:
		v.add(Warning, checkEpoch, "somebody has taken the TTL from its epoch record", fmt.Sprintf("the next client writes another and gives it no vote for up to %v", r.maxTTL), "")
	case r.maxTTL > v.settings.MaxTTL:
		v.add(Note, checkEpoch, fmt.Sprintf("the longest TTL on record is %v, longer than ours of %v", r.maxTTL, v.settings.MaxTTL),
			"after a restart it has no vote for that long", fmt.Sprintf("if no client uses such a TTL any more, delete the key %q on every node, once", key))
	default:
		v.fine(checkEpoch, "its clients lock by %d nodes, for at most %v at a time", r.nodes, r.maxTTL)
	}
}

func (v *visit) quarantine(q *question) {
	ms, _ := number(q.value)
	switch left := time.Duration(ms) * time.Millisecond; {
	case ms == -2:
		v.fine(checkQuarantine, "it is in no quarantine")
		return
	case ms == -1:
		v.add(Warning, checkQuarantine, "it is in quarantine, and somebody has taken the end from it", "the next client gives it an end, one longest TTL away", "")
	default:
		v.add(Warning, checkQuarantine, fmt.Sprintf("it is in quarantine for another %v", short(left)), "it is new, or was restarted or flushed, and may have forgotten locks: it has no vote until then", "wait")
	}
	v.facts.quarantine = true
}
