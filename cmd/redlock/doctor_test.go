package main

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/doctor"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// examineURLs runs doctor with limits that a busy machine keeps.
func examineURLs(t *testing.T, urls []string, args ...string) (code int, r doctor.Report) {
	t.Helper()
	args = append([]string{"doctor", "--json", "--max-ttl", lockedTTL.String(), "--dial-timeout", "20s", "--node-timeout", "10s"}, args...)
	for _, u := range urls {
		args = append(args, "--node", u)
	}
	code, out, errs := redlockCommand(t, args...)
	tr.Empty(t, errs)
	tr.NoError(t, json.Unmarshal([]byte(out), &r), out)
	return code, r
}

// found is the worst finding of a check on one node.
func found(r doctor.Report, node int, check string) (worst doctor.Finding) {
	for _, f := range r.Nodes[node].Findings {
		if f.Check == check && f.Severity >= worst.Severity {
			worst = f
		}
	}
	return worst
}

// locked has a client with the memory guard make itself known to the servers. Its TTL is
// lockedTTL, and so a client that assumes no longer ones may lock at once after it.
func locked(t *testing.T, urls []string) {
	t.Helper()
	nodes, err := pool.OpenWith(urls, patient...)
	tr.NoError(t, err)
	locker, err := redlock.New(nodes, redlock.TTL(lockedTTL), redlock.NodeTimeout(lockedTTL/2), redlock.Retries(100), redlock.RetryInterval(20*time.Millisecond))
	tr.NoError(t, err)
	defer locker.Close()
	asked := func(url string) bool {
		r, err := record.Parse(has(t, url, record.Key))
		return err == nil && r.Basis != record.Open
	}
	tr.Eventually(t, func() bool { // the last record may still be under way
		err := locker.Do(t.Context(), "doctor's", func(context.Context) error { return nil })
		return err == nil && !slices.ContainsFunc(urls, func(u string) bool { return !asked(u) })
	}, longEnough, time.Millisecond)
}

const lockedTTL = time.Second

func TestDoctorOnServersThatAreFine(t *testing.T) {
	f := startFleet(t, fleet.Process, 3)
	code, r := examineURLs(t, f.URLs())
	assert.Zero(t, code)
	assert.Equal(t, doctor.Note, r.Verdict, "no lock was taken yet")
	locked(t, f.URLs())
	code, r = examineURLs(t, f.URLs())
	assert.Zero(t, code)
	assert.Equal(t, doctor.OK, r.Verdict, "%+v", r)
	code, out, errs := redlockCommand(t, on(f, "doctor", "--dial-timeout", "20s", "--node-timeout", "10s", "--max-ttl", "1s")...)
	assert.Zero(t, code, errs)
	assert.Contains(t, out, "3 of 3 servers answered, 2 are needed: fine")
	_, all, _ := redlockCommand(t, on(f, "doctor", "--all")...)
	assert.Contains(t, all, "it is a primary")
	for line := range strings.Lines(out + all) {
		assert.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), columns)
	}
}

// TestDoctorTellsAFindingOnce that all servers have, with the longest of its times.
func TestDoctorTellsAFindingOnce(t *testing.T) {
	r := &doctor.Report{Quorum: 2, Answered: 3, Verdict: doctor.Warning}
	for _, left := range []string{"8.96s", "8.97s", "8.967s"} {
		r.Nodes = append(r.Nodes, doctor.NodeReport{Node: left, Findings: []doctor.Finding{
			{Severity: doctor.Warning, Check: "quarantine", Found: "it is in quarantine for another " + left},
		}})
	}
	text := diagnosis(r, false)
	assert.Equal(t, 1, strings.Count(text, "in quarantine"), text)
	assert.Contains(t, text, "every server\n  warning  it is in quarantine for another 8.97s")
}

// TestDoctorTellsOfServersThatRefuseWrites: one of three costs no lock, all of them do.
func TestDoctorTellsOfServersThatRefuseWrites(t *testing.T) {
	f := startFleet(t, fleet.Process, 3)
	for i, url := range f.URLs() {
		ask(t, url, "CONFIG", "SET", "min-replicas-to-write", "1")
		code, r := examineURLs(t, f.URLs())
		assert.Equal(t, doctor.Fatal, found(r, i, "role").Severity)
		assert.Equal(t, []int{exitDoctorWarning, exitDoctorFatal, exitDoctorFatal}[i], code)
	}
}

func TestDoctorChangesNothing(t *testing.T) {
	f := startFleet(t, fleet.Process, 1)
	put(t, f.URLs()[:1], "job", "v")
	changes := func() string {
		text, err := redis.String(ask(t, f.URLs()[0], "INFO", "persistence"), nil)
		tr.NoError(t, err)
		_, rest, ok := strings.Cut(text, "rdb_changes_since_last_save:")
		tr.True(t, ok)
		value, _, _ := strings.Cut(rest, "\r\n")
		return value
	}
	before := changes()
	other, err := redis.DialURL(f.URLs()[0])
	tr.NoError(t, err)
	defer other.Close()
	_, err = other.Do("PING")
	tr.NoError(t, err)
	examineURLs(t, f.URLs())
	_, err = other.Do("PING")
	assert.NoError(t, err, "it has not closed others' connections")
	assert.Equal(t, before, changes())
	assert.Equal(t, "v", has(t, f.URLs()[0], "job"))
}

func TestDoctorFindsWhatAilsRealServers(t *testing.T) {
	f := startFleet(t, fleet.Process, 3)
	urls := f.URLs()
	locked(t, urls)

	ask(t, urls[0], "CONFIG", "SET", "maxmemory", "100mb")
	ask(t, urls[0], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	code, r := examineURLs(t, urls)
	assert.Equal(t, exitDoctorWarning, code)
	assert.Equal(t, doctor.Warning, found(r, 0, "eviction").Severity)
	ask(t, urls[0], "CONFIG", "SET", "maxmemory-policy", "noeviction")

	code, r = examineURLs(t, urls[:1])
	assert.Equal(t, exitDoctorFatal, code, "its clients lock by three")
	assert.Contains(t, found(r, 0, "epoch").Found, "lock by 3 nodes, and here are 1")

	code, r = examineURLs(t, append(urls[:2:2], strings.Replace(urls[0], "127.0.0.1", "localhost", 1)))
	assert.Equal(t, exitDoctorWarning, code, "the other two have a vote")
	assert.Equal(t, doctor.Fatal, found(r, 2, "same_server").Severity)

	r1 := readRecord(t, urls[1])
	ask(t, urls[1], "FLUSHALL")
	code, r = examineURLs(t, urls)
	assert.Equal(t, exitDoctorWarning, code)
	assert.Contains(t, found(r, 1, "epoch").Found, "no epoch record, and others have")

	r1.Born, r1.Forgot, r1.Basis = time.Duration(time.Now().UnixMilli())*time.Millisecond, time.Minute, record.Proof
	ask(t, urls[1], "SET", record.Key, r1.String(), "PX", record.DrawLife().Milliseconds()) // as the next client does
	code, r = examineURLs(t, urls)
	assert.Equal(t, exitDoctorWarning, code)
	assert.Equal(t, doctor.Warning, found(r, 1, "quarantine").Severity)
	assert.Contains(t, found(r, 1, "quarantine").Do, "redlock reset")

	_, r = examineURLs(t, urls)
	assert.NotEqual(t, doctor.Warning, found(r, 2, "epoch").Severity)
	ask(t, urls[2], "PERSIST", record.Key)
	_, r = examineURLs(t, urls)
	assert.Contains(t, found(r, 2, "epoch").Found, "TTL was taken")
	tr.NoError(t, f.Restart(t.Context(), 2, fleet.Kept))
	_, r = examineURLs(t, urls)
	assert.Contains(t, found(r, 2, "epoch").Found, "restarted")

	host, port, _ := net.SplitHostPort(strings.TrimPrefix(urls[0], "redis://"))
	ask(t, urls[2], "REPLICAOF", host, port)
	code, r = examineURLs(t, urls)
	assert.Equal(t, exitDoctorFatal, code, "the second is in quarantine")
	assert.Contains(t, found(r, 2, "role").Found, "replica of "+host+":"+port)
}

func TestDoctorAsksTheACL(t *testing.T) {
	f := startFleet(t, fleet.Process, 1)
	url := f.URLs()[0]
	if info := string(ask(t, url, "INFO", "server").([]byte)); strings.Contains(info, "\nredis_version:6.0.") {
		t.Skip("since Redis 6.2: ACL rules for channels")
	}
	documented := []any{"+set", "+eval", "+evalsha", "+script|load", "+get", "+del", "+pexpire", "+pttl", "+time",
		"+role", "+info", "+client|id", "+client|kill", "+zadd", "+zrem", "+zrange", "+zrank", "+zcard", "+hset", "+hget", "+hdel",
		"+zscore", "+zremrangebyscore", "+exists", "+mget",
		"+client|tracking", "+client|caching", "+subscribe", "&__redis__:invalidate", "+config|get"}
	for _, newer := range []string{"delex", "delifeq"} {
		if ask(t, url, "COMMAND", "INFO", newer).([]any)[0] != nil {
			documented = append(documented, "+"+newer)
		}
	}
	user := func(rules ...any) string {
		ask(t, url, append([]any{"ACL", "SETUSER", "locks", "reset", "on", ">hunter2", "~job*", "~redlock:*"}, rules...)...)
		return strings.Replace(url, "redis://", "redis://locks:hunter2@", 1)
	}
	for _, dry := range []bool{true, false} {
		may := documented
		if dry {
			may = append(may, "+acl|whoami", "+acl|dryrun")
		}
		_, r := examineURLs(t, []string{user(may...)})
		assert.Equal(t, doctor.OK, found(r, 0, "rights").Severity, "what the documentation of package pool lists is enough: %+v", found(r, 0, "rights"))
		assert.Equal(t, doctor.OK, found(r, 0, "hints").Severity)
		assert.Zero(t, ask(t, url, "DBSIZE"))

		code, r := examineURLs(t, []string{user(append(may[1:len(may):len(may)], "-pexpire")...)})
		assert.Equal(t, exitDoctorFatal, code)
		assert.Contains(t, found(r, 0, "rights").Found, "lacks +set +pexpire")

		_, r = examineURLs(t, []string{user(append(may[:len(may):len(may)], "-zrank", "-client|tracking")...)})
		assert.Equal(t, doctor.Note, found(r, 0, "rights").Severity)
		assert.Equal(t, doctor.Note, found(r, 0, "hints").Severity)
	}
}

func TestDoctorIsNotHeldUpByAServerThatHangs(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			f := startFleet(t, kind, 3)
			tr.NoError(t, f.Pause(t.Context(), 0))
			code, out, errs := redlockCommand(t, on(f, "doctor", "--dial-timeout", "300ms", "--node-timeout", "5s")...)
			assert.Contains(t, []int{exitDoctorWarning, exitNoQuorum}, code, errs) // a busy machine hangs, too
			assert.Contains(t, out, "accepts connections but does not answer")
			tr.NoError(t, f.Resume(t.Context(), 0))
		})
	}
}

func TestDoctorWithoutAQuorum(t *testing.T) {
	f := startFleet(t, fleet.Embedded, 3)
	for i := range 2 {
		tr.NoError(t, f.Kill(t.Context(), i))
	}
	code, r := examineURLs(t, f.URLs())
	assert.Equal(t, exitNoQuorum, code)
	assert.Equal(t, 1, r.Answered)
	assert.Contains(t, found(r, 0, "reachable").Found, "refused")
	_, out, _ := redlockCommand(t, on(f, "doctor")...)
	assert.Contains(t, out, "1 of 3 servers answered, 2 are needed: not fit")
}

func TestDoctorOnATrial(t *testing.T) {
	code, out, errs := redlockCommand(t, on(startFleet(t, fleet.Embedded, 5), "doctor", "--dial-timeout", "20s", "--node-timeout", "10s")...)
	assert.Zero(t, code, errs)
	assert.Contains(t, out, "every server\n", "what is the same for all is told once")
	assert.Equal(t, 1, strings.Count(out, "nobody has locked"))
}

func TestTextIsWrapped(t *testing.T) {
	long := strings.Repeat("word ", 40)
	for i, line := range strings.Split(wrap(long, 7), "\n") {
		assert.LessOrEqual(t, len(line), columns)
		if i > 0 {
			assert.True(t, strings.HasPrefix(line, strings.Repeat(" ", 7)+"w"))
			assert.LessOrEqual(t, len(line), columns)
		}
	}
	assert.Equal(t, "", wrap("", 3))
}
