package doctor

import (
	"cmp"
	"fmt"
	"strconv"
)

// memory checks which keys the server may lose in a restart, or when its memory is full.
func (v *visit) memory() {
	v.persistence(v.Info("persistence"), v.setting("appendonly"), v.setting("appendfsync"), v.setting("save"))
	v.replicas(v.Info("replication")["min_slaves_good_slaves"], v.setting("min-replicas-to-write"))
	info := v.Info("memory")
	// An ACL may hide one of the two sources.
	v.eviction(cmp.Or(v.setting("maxmemory-policy"), info["maxmemory_policy"]), cmp.Or(v.setting("maxmemory"), info["maxmemory"]), info["used_memory"])
}

// replicas checks whether the server refuses writes for lack of replicas. A server reports the number of good
// replicas only if it requires some, and an ACL may hide that number.
func (v *visit) replicas(good, wanted string) {
	have, err := strconv.Atoi(good)
	want, _ := strconv.Atoi(wanted)
	if err != nil {
		return
	}
	found := fmt.Sprintf("its min-replicas-to-write is %d, and it has %d good replica(s)", max(want, 1), have)
	const do = "CONFIG SET min-replicas-to-write 0"
	if have < max(want, 1) {
		v.add(Finding{Fatal, checkRole, found, "it refuses all writes, so it has no vote", do})
		return
	}
	v.add(Finding{Warning, checkRole, found, "with fewer good replicas it refuses all writes and loses its vote", do})
}

func (v *visit) persistence(info map[string]string, appendonly, appendfsync, save string) {
	if info["loading"] == "1" {
		v.add(Finding{Warning, checkPersistence, "it is loading its data", "it has no vote until it has loaded them", "wait"})
	}
	if info["aof_last_write_status"] == "err" || info["rdb_last_bgsave_status"] == "err" {
		v.add(Finding{Warning, checkPersistence, "its last write to disk failed", "it may refuse all writes, and then has no vote, until it can write to disk again", "check its log and the free space of its disk"})
	}
	if appendonly == "" { // an ACL hides CONFIG; INFO has some of the settings
		appendonly = map[string]string{"1": "yes", "0": "no"}[info["aof_enabled"]]
	}
	const always = "it forgets nothing: appendonly with appendfsync always"
	switch {
	case appendonly == "yes" && appendfsync == "always":
		v.fine(checkPersistence, always)
	case appendonly == "yes" && appendfsync == "":
		v.forgets("it writes an append-only file, and hides its appendfsync", "perhaps the locks of the last second")
	case appendonly == "yes":
		v.forgets("it writes an append-only file with appendfsync "+appendfsync, "the locks of the last second, or more")
	case appendonly == "":
		v.forgets("it hides its persistence settings", "perhaps all locks")
	case save != "":
		v.forgets("it writes snapshots only (save "+save+")", "all locks since the last snapshot")
	default:
		v.forgets("it writes no append-only file", "all locks, or the locks since the last snapshot")
	}
}

// forgets reports a server that forgets keys when it restarts.
func (v *visit) forgets(found, what string) {
	if v.settings.Guard {
		v.add(Finding{Note, checkPersistence, found, "a restart forgets " + what + "; because of the memory guard, it then has no vote for the longest TTL", ""})
		return
	}
	v.add(Finding{Warning, checkPersistence, found, "a restart forgets " + what + ", and the memory guard is off: two clients can hold one lock",
		"turn the memory guard on, or use appendonly yes with appendfsync always"})
}

// nearlyFull is the share of maxmemory, in per cent, above which the server will soon refuse
// writes.
const nearlyFull = 90

func (v *visit) eviction(policy, maxmemory, usedMemory string) {
	limit, _ := strconv.ParseInt(maxmemory, 10, 64)
	used, _ := strconv.ParseInt(usedMemory, 10, 64)
	const do = "CONFIG SET maxmemory-policy noeviction"
	switch {
	case policy == "":
		v.add(Finding{Note, checkEviction, "it hides its maxmemory-policy", "it may evict held locks", "set it to noeviction, and permit CONFIG GET or INFO"})
	case policy == "noeviction":
		v.fine(checkEviction, "it evicts nothing: maxmemory-policy noeviction")
	case limit == 0:
		v.add(Finding{Note, checkEviction, "its maxmemory-policy is " + policy + ", without a limit", "it evicts nothing as long as maxmemory stays 0", do})
	default:
		v.add(Finding{Warning, checkEviction, "its maxmemory-policy is " + policy + ", with a limit of " + megabytes(limit),
			"when its memory is full, it may evict a held lock without notice: two clients can hold it", do})
	}
	if policy == "noeviction" && limit > 0 && used >= limit/100*nearlyFull {
		v.add(Finding{Warning, checkMemory, fmt.Sprintf("it uses %s of %s", megabytes(used), megabytes(limit)), "when its memory is full, it refuses writes, so it has no vote", "raise its maxmemory"})
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }
