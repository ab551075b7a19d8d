package doctor

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/internal/record"
)

// identity judges the kind of the server.
func (v *visit) identity() {
	info, role := v.Answer("INFO server"), v.Answer("ROLE")
	if info.IsUnknown() && role.IsUnknown() && v.Answer("CLIENT ID").IsUnknown() && v.Answer("SCRIPT EXISTS 0").IsUnknown() {
		v.unfit = true
		v.add(Finding{Fatal, checkMode, "it is a proxy, such as Envoy, that blocks INFO, ROLE, CLIENT and SCRIPT",
			"the proxy hides its servers, so it has no vote", "use the address of the server itself"})
		return
	}
	fields := info.Fields()
	v.version(fields)
	// The names are Redis', Valkey's and Redict's.
	switch mode := cmp.Or(fields["redis_mode"], fields["server_mode"], fields["redict_mode"]); {
	case mode == "cluster":
		v.cluster()
	case mode == "sentinel", v.Who.Role == "sentinel":
		v.unfit = true
		v.add(Finding{Fatal, checkMode, "it is a Sentinel, which keeps no keys", "it cannot vote", "use the servers that it monitors: redis://a?standby=b"})
		return
	}
	v.role(role.List())
	switch {
	case v.Who.UsesReplID():
		v.add(Finding{Note, checkRunID, "its INFO has no run_id", "its master_replid identifies it: a first replica or a backup counts as a restart, and costs its vote for the longest TTL", ""})
	case v.Who.RunID != "":
	case info.Err == "":
		v.add(Finding{Warning, checkRunID, "its INFO has no run_id and no substitute", "neither a restart with old data nor a duplicate server is detected", "make the resource compare fencing tokens"})
	default:
		v.add(Finding{Warning, checkRunID, "it hides its run_id", "neither a restart with old data nor a duplicate server is detected", "permit INFO"})
	}
}

// cluster finds out whether a server in cluster mode has all keys.
func (v *visit) cluster() {
	q := v.Answer("CLUSTER INFO")
	others, err := strconv.Atoi(q.Fields()["cluster_known_nodes"])
	replicas, _ := strconv.Atoi(v.Info("replication")["connected_slaves"])
	switch {
	case q.Err != "":
		v.add(Finding{Warning, checkMode, fmt.Sprintf("it is in cluster mode, and hides its cluster (%s)", q.Err), "if the cluster has several shards, it has no vote on most names", "permit CLUSTER INFO"})
	case v.Who.Missing != "":
		v.inCluster(fmt.Sprintf("it is part of a Redis Cluster (%s)", v.Who.Missing))
	case err == nil && others-1 > replicas:
		v.add(Finding{Warning, checkMode, fmt.Sprintf("its cluster has %d other servers, but only %d of them are its connected replicas", others-1, replicas),
			"if a slot moves to another primary and back, its locks are lost, and the server is in quarantine for the longest TTL",
			"remove other primaries with CLUSTER FORGET"})
	}
}

func (v *visit) inCluster(found string) {
	v.unfit = true
	v.add(Finding{Fatal, checkMode, found, "it redirects keys of other slots to other servers, so it cannot vote alone", "use independent servers, or a cluster of one shard"})
}

// redirected reports whether the answer is a redirect, or another error, of a node of a Redis
// Cluster.
func redirected(q *inspect.Command) bool {
	for _, code := range []string{"MOVED ", "ASK ", "TRYAGAIN ", "CROSSSLOT ", "CLUSTERDOWN "} {
		if strings.HasPrefix(string(q.Err), code) {
			return true
		}
	}
	return false
}

// version checks that the server has the commands of locks: SET with NX and PX since 2.6.12, scripts
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
		v.add(Finding{Note, checkVersion, "it hides its version", "clients find out whether it supports locks when they take one", "permit INFO"})
	case n < 2_006_012:
		v.add(Finding{Fatal, checkVersion, "it is " + called, "it cannot vote, because SET has no NX and PX before 2.6.12", update})
	case n < 5_000_000:
		v.add(Finding{Fatal, checkVersion, "it is " + called, "before 5.0 a script cannot both read the clock and write, so there are no memory guard and no fencing tokens", update})
	case n < 6_000_000:
		v.add(Finding{Warning, checkVersion, "it is " + called, "before 6.0 there are no fencing tokens, and no hints when a lock is free", update})
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

// role judges the answer to ROLE.
func (v *visit) role(answer []any) {
	switch role := v.Who.Role; {
	case role == "":
		v.add(Finding{Warning, checkRole, "it hides its role", "clients would not detect that it is a replica", "permit ROLE"})
	case record.MayVote(role):
		replicas := 0
		if len(answer) > 2 {
			each, _ := answer[2].([]any)
			replicas = len(each)
		}
		if replicas > 0 && len(v.server.Members) == 0 {
			v.add(Finding{Note, checkRole, fmt.Sprintf("it is a primary with %d replica(s)", replicas),
				"a promoted replica may lack the latest locks; because its run_id differs, it has no vote for the longest TTL", ""})
			return
		}
		v.fine(checkRole, "it is a primary with %d replicas", replicas)
	case role == "slave":
		v.add(Finding{Fatal, checkRole, "it is a replica of " + cmp.Or(v.Who.Of, "another"), "it must not vote, because its primary can grant the same locks, and overwrites its data", "use the primary, or make this server a primary (REPLICAOF NO ONE)"})
	default:
		v.add(Finding{Fatal, checkRole, "its role is " + role, "it must not vote, because only a primary keeps locks of its own", "use a primary"})
	}
}
