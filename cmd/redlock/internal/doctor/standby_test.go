package doctor

import (
	"context"
	"errors"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/record"
)

// replica returns a healthy standby.
func replica() *fake {
	return healthy().but("INFO server", "run_id:bbbb\r\n").but("ROLE", []any{[]byte("slave"), []byte("10.0.0.1"), int64(6379), []byte("connected"), int64(1)})
}

func TestNodeWithStandbysHasItsFindings(t *testing.T) {
	t.Parallel()
	const ours, before = "aaaa/dddd", "aaaa/cccc"
	key := "GET " + record.PrimaryKey
	noperm := redis.Error("NOPERM this user has no permissions to run it")
	for name, test := range map[string]struct {
		primary, standby *fake
		severity         Severity
		says             string
	}{
		"confirmed":     {healthy().but(key, []byte(ours)), replica(), OK, "is confirmed"},
		"no backlog":    {healthy().but(key, []byte(ours)).but("CONFIG GET repl-backlog-ttl", pair("repl-backlog-ttl", "0")), replica(), OK, "is confirmed"},
		"backlog":       {healthy().but(key, []byte(ours)).but("CONFIG GET repl-backlog-ttl", pair("repl-backlog-ttl", "3600")), replica(), Note, "repl-backlog-ttl is 3600"},
		"new":           {healthy().but(key, absent), replica(), Warning, "is not confirmed"},
		"promoted":      {healthy().but(key, []byte(before)), replica(), Warning, "is not confirmed"},
		"hides the key": {healthy().but(key, noperm), replica(), Fatal, "permit INFO"},
		"hides itself":  {healthy().but(key, []byte(ours)).but("INFO replication", noperm), replica(), Fatal, "permit INFO"},
		"two primaries": {healthy().but(key, []byte(ours)), healthy().but("INFO server", "run_id:bbbb\r\n"), Warning, "standby of its node is a primary, too"},
		"standby away":  {healthy().but(key, []byte(ours)), healthy().but("ROLE", errors.New("reset by peer")), Warning, "standby of its node cannot be reached: reset by peer"},
		"not linked":    {healthy().but(key, []byte(ours)), replica().but("ROLE", []any{[]byte("slave"), []byte("10.0.0.1"), int64(6379), []byte("connecting"), int64(-1)}), Warning, "see its log, and check masterauth"},
		"hidden role":   {healthy().but(key, []byte(ours)), replica().but("ROLE", noperm), Warning, "standby of its node cannot be reached: NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := test.primary.server("first")
			// The server is also examined as one member of the node.
			again := healthy().but("ROLE", []any{[]byte("master"), int64(0), []any{}})
			s.Members = []Server{again.server("first"), test.standby.server("standby")}
			r := examine(t.Context(), []Server{s}, usual)
			explained(t, r.Nodes[0].Findings)
			f := find(r.Nodes[0].Findings, checkStandby)
			assert.Equal(t, test.severity, f.Severity, "%+v", r.Nodes[0])
			assert.Contains(t, f.Found+f.Means+f.Do, test.says)
		})
	}
}

func TestNodeWithStandbysNeedsTheGuard(t *testing.T) {
	t.Parallel()
	s := healthy().server("first")
	s.Members = []Server{healthy().server("first"), replica().server("standby")}
	without := usual
	without.Guard = false
	f := find(examine(t.Context(), []Server{s}, without).Nodes[0].Findings, checkStandby)
	assert.Equal(t, Fatal, f.Severity)
	assert.Contains(t, f.Found, "the memory guard is off")
}

func TestServersOfANodeComeFromItsURL(t *testing.T) {
	t.Parallel()
	s, err := Open("redis://:word@10.0.0.1:7001/2?standby=10.0.0.2:7002&standby=10.0.0.3")
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.1:7001+10.0.0.2:7002+10.0.0.3:6379/2", s.Name)
	var names []string
	for _, m := range s.Members {
		names = append(names, m.Name)
	}
	assert.Equal(t, []string{"10.0.0.1:7001/2", "10.0.0.2:7002/2", "10.0.0.3:6379/2"}, names)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = lookAt(ctx, s.Members[0])
	assert.Error(t, err)

	s, err = Open("redis://10.0.0.1")
	require.NoError(t, err)
	assert.Empty(t, s.Members)
}
