package doctor

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/record"
)

// identity finds out what kind of server it is.
func (v *visit) identity() {
	info, role := v.answers["INFO server"], v.answers["ROLE"]
	if info.unknown() && role.unknown() && v.answers["CLIENT ID"].unknown() && v.answers["SCRIPT EXISTS 0"].unknown() {
		v.unfit = true
		v.add(Finding{Fatal, checkMode, "it is a proxy, such as Envoy, that blocks INFO, ROLE, CLIENT and SCRIPT",
			"the servers behind it are unknown, and it has no vote", "use the address of a server itself"})
		return
	}
	fields := info.fields()
	v.version(fields)
	// The names are Redis', Valkey's and Redict's.
	switch mode := cmp.Or(fields["redis_mode"], fields["server_mode"], fields["redict_mode"]); {
	case mode == "cluster":
		v.cluster()
	case mode == "sentinel", role.role() == "sentinel":
		v.unfit = true
		v.add(Finding{Fatal, checkMode, "it is a Sentinel, which keeps no keys", "it cannot vote", "use the servers that it watches: redis://a?standby=b"})
		return
	}
	v.role(role)
	switch data := v.info("replication")["master_replid"]; {
	case v.runID != "":
	case data != "" && info.err == "":
		v.runID = data
		v.add(Finding{Note, checkRunID, "its INFO has no run_id", "its master_replid is used: a first replica or a backup counts as a restart, and costs the longest TTL", ""})
	case info.err == "":
		v.add(Finding{Warning, checkRunID, "its INFO has no run_id and no substitute", "a restart with an old state is not noticed, nor a duplicate server", "make the resource compare fencing tokens"})
	default:
		v.add(Finding{Warning, checkRunID, "it hides its run_id", "a restart with an old state is not noticed, nor a duplicate server", "permit INFO"})
	}
}

// cluster finds out whether a server in cluster mode has all keys.
func (v *visit) cluster() {
	q := v.answers["CLUSTER INFO"]
	if q.err != "" {
		v.add(Finding{Warning, checkMode, fmt.Sprintf("it is in cluster mode, and hides its cluster (%s)", q.err), "with several shards it has no vote on most names", "permit CLUSTER INFO"})
	} else if why := keys.Missing(q.text()); why != "" {
		v.inCluster(fmt.Sprintf("it is part of a Redis Cluster (%s)", why))
	} else if others, err := strconv.Atoi(q.fields()["cluster_known_nodes"]); err == nil && others-1 > v.connectedReplicas() {
		v.add(Finding{Warning, checkMode, fmt.Sprintf("its cluster knows %d other servers, of which %d are its connected replicas", others-1, v.connectedReplicas()),
			"a slot that moves to another primary and returns has lost its locks, which costs a quarantine of the longest TTL",
			"remove other primaries with CLUSTER FORGET"})
	}
}

// connectedReplicas returns the number of connected replicas.
func (v *visit) connectedReplicas() int {
	n, _ := strconv.Atoi(v.info("replication")["connected_slaves"])
	return n
}

func (v *visit) inCluster(found string) {
	v.unfit = true
	v.add(Finding{Fatal, checkMode, found, "it redirects keys of other slots to other servers, so it cannot vote alone", "use independent servers, or a cluster of one shard"})
}

// redirected reports whether the answer is a redirect, or another error, of a node of a Redis
// Cluster.
func (q *question) redirected() bool {
	for _, code := range []string{"MOVED ", "ASK ", "TRYAGAIN ", "CROSSSLOT ", "CLUSTERDOWN "} {
		if strings.HasPrefix(string(q.err), code) {
			return true
		}
	}
	return false
}

// version checks that the server has what locks need: SET with NX and PX since 2.6.12, scripts
// that read the clock and then write since 5.0, CLIENT TRACKING and KEEPTTL
// since 6.0.
func (v *visit) version(fields map[string]string) {
	text := fields["redis_version"]
	called := "Redis " + text
	if own := fields["valkey_version"]; own != "" {
		called = fmt.Sprintf("Valkey %s (compatible with Redis %s)", own, text)
	}
	const update = "use Redis 6 or later, or Valkey"
	n, ok := parseVersion(text)
	v.noChannels = ok && n < 6_002_000
	switch {
	case !ok:
		v.add(Finding{Note, checkVersion, "it hides its version", "whether it supports locks is unknown until one is taken", "permit INFO"})
	case n < 2_006_012:
		v.add(Finding{Fatal, checkVersion, "it is " + called, "there is no SET with NX and PX before 2.6.12: it cannot vote", update})
	case n < 5_000_000:
		v.add(Finding{Fatal, checkVersion, "it is " + called, "its scripts cannot both read the clock and write: no memory guard and no fencing tokens before 5.0", update})
	case n < 6_000_000:
		v.add(Finding{Warning, checkVersion, "it is " + called, "there are no hints when a lock is free, and no fencing tokens, before 6.0", update})
	default:
		v.fine(checkVersion, "it is %s", called)
	}
}

// parseVersion makes 6.2.10 the number 6002010.
func parseVersion(text string) (number int, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	for i := range 3 {
		number *= 1000
		if i < len(parts) {
			n, err := strconv.Atoi(parts[i])
			if err != nil || n < 0 || n > 999 {
				return 0, false
			}
			number += n
		}
	}
	return number, true
}

// role returns the first word of the answer to ROLE.
func (q *question) role() (role string) {
	if list, _ := redis.Values(q.value, nil); len(list) > 0 {
		role, _ = redis.String(list[0], nil)
	}
	return role
}

func (v *visit) role(q *question) {
	list, _ := redis.Values(q.value, nil)
	role := q.role()
	switch {
	case role == "":
		v.add(Finding{Warning, checkRole, "it hides its role", "a replica would not be noticed", "permit ROLE"})
	case record.MayVote(role):
		replicas := 0
		if len(list) > 2 {
			each, _ := redis.Values(list[2], nil)
			replicas = len(each)
		}
		if replicas > 0 && len(v.server.Members) == 0 {
			v.add(Finding{Note, checkRole, fmt.Sprintf("it is a primary with %d replica(s)", replicas),
				"a replica that takes over lacks the last locks; its other run_id keeps it from voting for the longest TTL", ""})

			return
		}
		v.fine(checkRole, "it is a primary with %d replicas", replicas)
	case role == "slave":
		primary := "another"
		if len(list) > 2 {
			host, _ := redis.String(list[1], nil)
			port, _ := redis.Int(list[2], nil)
			primary = fmt.Sprintf("%s:%d", host, port)
		}
		v.add(Finding{Fatal, checkRole, "it is a replica of " + primary, "it must not vote: its primary grants what it has granted, and overwrites it", "use the primary, or run REPLICAOF NO ONE to make it one"})
	default:
		v.add(Finding{Fatal, checkRole, "its role is " + role, "it must not vote: only a primary keeps locks of its own", "use a primary"})
	}
}
