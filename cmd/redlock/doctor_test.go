package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// examineURLs runs doctor with limits that even a busy machine meets.
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

// found returns the worst finding of a check on one node.
func found(r doctor.Report, node int, check string) (worst doctor.Finding) {
	for _, f := range r.Nodes[node].Findings {
		if f.Check == check && f.Severity >= worst.Severity {
			worst = f
		}
	}
	return worst
}

// locked lets a client with the memory guard write its record to the servers. Its TTL is lockedTTL,
// so a later client that assumes no longer TTLs may lock at once.
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
	eventually(t, "all servers have a record", func() bool { // the last record may not have been written yet
		err := locker.Do(t.Context(), "doctor's", func(context.Context) error { return nil })
		return err == nil && !slices.ContainsFunc(urls, func(u string) bool { return !asked(u) })
	})
}

const lockedTTL = time.Second

func TestDoctorPassesHealthyServers(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 3)
	for _, u := range f.URLs() {
		ask(t, u, "CONFIG", "SET", "appendfsync", "always")
	}
	code, r := examineURLs(t, f.URLs())
	assert.Zero(t, code)
	assert.Equal(t, doctor.Note, r.Verdict, "no lock was taken yet")
	locked(t, f.URLs())
	code, r = examineURLs(t, f.URLs())
	assert.Zero(t, code)
	assert.Equal(t, doctor.OK, r.Verdict, "%+v", r)
	out := succeeds(t, on(f, "doctor", "--dial-timeout", "20s", "--node-timeout", "10s", "--max-ttl", "1s")...)
	assert.Contains(t, out, "3 of 3 servers answered, 2 are needed: fine")
	_, all, _ := redlockCommand(t, on(f, "doctor", "--all")...)
	assert.Contains(t, all, "it is a primary")
	fits(t, out+all)
}

// TestDoctorReportsACommonFindingOnce: doctor prints a finding of all servers once, with the
// longest of its times.
func TestDoctorReportsACommonFindingOnce(t *testing.T) {
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

// TestDoctorReportsServersThatRefuseWrites: if one of three refuses writes, locks work; if all of
// them refuse, no lock can be taken.
func TestDoctorReportsServersThatRefuseWrites(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 3)
	for i, url := range f.URLs() {
		ask(t, url, "CONFIG", "SET", "min-replicas-to-write", "1")
		code, r := examineURLs(t, f.URLs())
		assert.Equal(t, doctor.Fatal, found(r, i, "role").Severity)
		assert.Equal(t, []int{exitDoctorWarning, exitDoctorFatal, exitDoctorFatal}[i], code)
	}
}

func TestDoctorFindsFaultsOfRealServers(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 3)
	urls := f.URLs()
	locked(t, urls)

	code, r := examineURLs(t, urls[:1])
	assert.Equal(t, exitDoctorFatal, code, "its clients use three nodes")
	assert.Contains(t, found(r, 0, "epoch").Found, "use 3 nodes, but this list has 1")

	code, r = examineURLs(t, append(urls[:2:2], strings.Replace(urls[0], "127.0.0.1", "localhost", 1)))
	assert.Equal(t, exitDoctorWarning, code, "the other two have a vote")
	assert.Equal(t, doctor.Fatal, found(r, 2, "same_server").Severity)

	ask(t, urls[0], "CONFIG", "SET", "maxmemory", "100mb")
	ask(t, urls[0], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	ask(t, urls[1], "FLUSHALL")
	tr.NoError(t, f.Restart(t.Context(), 2, fleet.Kept))
	code, r = examineURLs(t, urls)
	assert.Equal(t, exitDoctorWarning, code)
	assert.Equal(t, doctor.Warning, found(r, 0, "eviction").Severity)
	assert.Contains(t, found(r, 1, "epoch").Found, "no epoch record, but other servers do")
	assert.Contains(t, found(r, 2, "epoch").Found, "restarted")
}

func TestDoctorReportsAMissingQuorum(t *testing.T) {
	t.Parallel()
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
