package doctor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock"
)

func TestHealthyServersPass(t *testing.T) {
	t.Parallel()
	r := three(t, healthy(), usual)
	assert.Equal(t, OK, r.Verdict, "%+v", r)
	assert.Equal(t, 3, r.Answered)
	assert.Equal(t, 2, r.Quorum)
	for i := range r.Nodes {
		timing := &r.Nodes[i].Timing
		require.NotNil(t, *timing)
		assert.Positive(t, (*timing).Trip)
		assert.GreaterOrEqual(t, (*timing).Longest, (*timing).Trip)
		assert.Positive(t, (*timing).Uncertainty)
		*timing = nil // the JSON document does not contain the timing
	}
	b, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, string(b), `"verdict":"ok"`)
	var again Report
	require.NoError(t, json.Unmarshal(b, &again))
	assert.Equal(t, *r, again)
}

// withReplicas returns a server that requires one replica and reports good replicas.
func withReplicas(good string) *fake {
	return healthy().but("INFO replication", "role:master\r\nmaster_replid:dddd\r\nmin_slaves_good_slaves:"+good+"\r\n").
		but("CONFIG GET min-replicas-to-write", pair("min-replicas-to-write", "1"))
}

// TestNewServersVoteForAClientWithAShortTTL: the doctor assumes longer TTLs, but must not report
// that no lock can be taken.
func TestNewServersVoteForAClientWithAShortTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for age, locks := range map[time.Duration]bool{2 * time.Second: true, 500 * time.Millisecond: false} {
			r := examine(t.Context(), []Server{healthy().but("GET redlock:epoch", []byte(recordOf("aaaa/dddd", func(r *record.Record) {
				now := r.Born + time.Hour
				r.Nodes, r.Born, r.Basis = 1, now-age, record.Asked
				r.Steps = []record.Step{{TTL: time.Second, Entered: r.Born, Used: now}}
			}))).server("a")}, usual)
			assert.Equal(t, locks, r.Locks(), "%+v", r)
			means := find(r.Nodes[0].Findings, CheckQuarantine).Means
			assert.Equal(t, locks, strings.Contains(means, "clients that have seen no TTL above 1s already count its vote"), means)
		}
	})
}

func TestServerHasItsFindings(t *testing.T) {
	t.Parallel()
	noperm := redis.Error("NOPERM this user has no permissions to run it")
	unguarded := usual
	unguarded.Guard = false
	const replication = "role:master\r\nmaster_replid:dddd\r\n"
	for name, test := range map[string]struct {
		fake     *fake
		settings Settings
		check    string
		severity Severity
		says     string
	}{
		"replica":          {healthy().but("ROLE", []any{[]byte("slave"), []byte("10.0.0.9"), int64(6379), []byte("connected"), int64(1)}), usual, checkRole, Fatal, "10.0.0.9:6379"},
		"sentinel role":    {healthy().but("ROLE", []any{[]byte("sentinel")}), usual, checkMode, Fatal, "Sentinel"},
		"KeyDB's replica":  {healthy().but("ROLE", []any{[]byte("active-replica")}), usual, checkRole, Fatal, "active-replica"},
		"role hidden":      {healthy().but("ROLE", noperm), usual, checkRole, Warning, "permit ROLE"},
		"has a replica":    {healthy().but("ROLE", []any{[]byte("master"), int64(0), []any{[]any{[]byte("a"), []byte("1"), []byte("0")}}}), usual, checkRole, Note, "1 replica"},
		"writes refused":   {withReplicas("0"), usual, checkRole, Fatal, "min-replicas-to-write is 1, and it has 0 good"},
		"writes at stake":  {withReplicas("1"), usual, checkRole, Warning, "min-replicas-to-write is 1, and it has 1 good"},
		"no EVAL":          {healthy().but("ACL DRYRUN locks EVAL ", "no"), usual, checkRights, Note, "lacks +eval"},
		"no scripts":       {healthy().but("ACL DRYRUN locks EVAL ", "no").but("ACL DRYRUN locks SCRIPT ", "no"), usual, checkRights, Fatal, "lacks +eval +script|load"},
		"cluster":          {healthy().but("INFO server", "redis_version:7.2.4\r\nredis_mode:cluster\r\nrun_id:aaaa\r\n").but("CLUSTER INFO", shards(3)), usual, checkMode, Fatal, "Cluster"},
		"cluster, redict":  {healthy().but("INFO server", "redis_version:7.2.4\r\nredict_version:7.3.1\r\nredict_mode:cluster\r\nrun_id:aaaa\r\n").but("CLUSTER INFO", shards(3)), usual, checkMode, Fatal, "Cluster"},
		"cluster, unsaid":  {healthy().but("INFO server", "redis_version:7.2.4\r\nredis_mode:cluster\r\nrun_id:aaaa\r\n").but("CLUSTER INFO", noperm), usual, checkMode, Warning, "permit CLUSTER INFO"},
		"sentinel, valkey": {healthy().but("INFO server", "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nserver_mode:sentinel\r\nrun_id:aaaa\r\n"), usual, checkMode, Fatal, "Sentinel"},
		"proxy":            {proxy(), usual, checkMode, Fatal, "proxy, such as Envoy"},
		"no run_id":        {nameless(replication), usual, checkRunID, Note, "no run_id"},
		"no run_id at all": {nameless("role:master\r\n"), usual, checkRunID, Warning, "no run_id and no substitute"},
		"no restart":       {nameless(replication), usual, checkEpoch, OK, "use 3 nodes"},
		"no restart, seen": {nameless(replication).but("EVAL ", []byte("eeee")).but("GET redlock:epoch", []byte(recordOf("eeee/dddd", nil))), usual, checkEpoch, OK, "use 3 nodes"},
		"another primary":  {healthy().but("INFO server", "redis_version:7.2.4\r\nredis_mode:cluster\r\nrun_id:aaaa\r\n").but("CLUSTER INFO", shards(1)+"cluster_known_nodes:2\r\n"), usual, checkMode, Warning, "CLUSTER FORGET"},
		"one shard":        {healthy().but("INFO server", "redis_version:7.2.4\r\nredis_mode:cluster\r\nrun_id:aaaa\r\n").but("CLUSTER INFO", shards(1)), usual, checkMode, OK, ""},
		"sentinel, hidden": {healthy().but("INFO", noperm).but("INFO server", noperm).but("ROLE", []any{[]byte("sentinel"), []any{}}), usual, checkMode, Fatal, "Sentinel"},
		"cluster, hidden":  {healthy().but("INFO", noperm).but("INFO server", noperm).but("GET redlock:epoch", redis.Error("MOVED 3300 10.0.0.2:6379")), usual, checkMode, Fatal, "MOVED 3300"},
		"very old":         {healthy().but("INFO server", "redis_version:2.6.11\r\nrun_id:aaaa\r\n"), usual, checkVersion, Fatal, "NX and PX"},
		"old":              {healthy().but("INFO server", "redis_version:4.0.14\r\nrun_id:aaaa\r\n"), usual, checkVersion, Fatal, "memory guard"},
		"rather old":       {healthy().but("INFO server", "redis_version:5.0.14\r\nrun_id:aaaa\r\n"), usual, checkVersion, Warning, "hints"},
		"valkey":           {healthy().but("INFO server", "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nrun_id:aaaa\r\n"), usual, checkVersion, OK, "Valkey 8.0.1"},
		"info hidden":      {healthy().but("INFO", noperm).but("INFO server", noperm), usual, checkRunID, Warning, "permit INFO"},
		"everysec":         {healthy().but("CONFIG GET appendfsync", pair("appendfsync", "everysec")), usual, checkPersistence, Note, "because of the memory guard"},
		"unguarded":        {healthy().but("CONFIG GET appendfsync", pair("appendfsync", "everysec")), unguarded, checkPersistence, Warning, "two clients can hold"},
		"snapshots":        {healthy().but("CONFIG GET appendonly", pair("appendonly", "no")).but("CONFIG GET save", pair("save", "3600 1")), usual, checkPersistence, Note, "save 3600 1"},
		"config hidden":    {healthy().but("CONFIG GET appendonly", noperm).but("CONFIG GET appendfsync", noperm), usual, checkPersistence, Note, "hides its appendfsync"},
		"loading":          {healthy().but("INFO persistence", "loading:1\r\n"), usual, checkPersistence, Warning, "loading"},
		"disk is full":     {healthy().but("INFO persistence", "aof_last_write_status:err\r\n"), usual, checkPersistence, Warning, "free space"},
		"evicts":           {healthy().but("CONFIG GET maxmemory-policy", pair("maxmemory-policy", "allkeys-lru")).but("CONFIG GET maxmemory", pair("maxmemory", "104857600")), usual, checkEviction, Warning, "100.0 MB"},
		"evicts, by info":  {healthy().but("CONFIG GET", noperm).but("CONFIG GET maxmemory-policy", noperm).but("CONFIG GET maxmemory", noperm).but("INFO memory", "maxmemory:1048576\r\nmaxmemory_policy:volatile-ttl\r\n"), usual, checkEviction, Warning, "volatile-ttl"},
		"would evict":      {healthy().but("CONFIG GET maxmemory-policy", pair("maxmemory-policy", "allkeys-lru")), usual, checkEviction, Note, "without a limit"},
		"memory full":      {healthy().but("CONFIG GET maxmemory", pair("maxmemory", "1000000")), usual, checkMemory, Warning, "refuses writes"},
		"quarantine":       {recorded(func(r *record.Record) { r.Born += time.Hour + 10*time.Minute; r.Basis = record.Asked }), usual, CheckQuarantine, Warning, "a TTL of 10s, because the records of the other servers"},
		"proven":           {recorded(func(r *record.Record) { r.Forgot = 2 * time.Hour }), usual, CheckQuarantine, Warning, "a TTL of 2h0m0s, according to the records of the other servers"},
		"proven, over":     {recorded(func(r *record.Record) { r.Born += time.Hour }), usual, CheckQuarantine, OK, "not in quarantine"},
		"not asked":        {recorded(func(r *record.Record) { r.Basis = record.Open }), usual, CheckQuarantine, Note, "waits once for 10s"},
		"endless":          {recorded(func(r *record.Record) { r.Forgot = 300 * 24 * time.Hour }), usual, CheckQuarantine, Warning, "redlock reset"},
		"other N":          {recorded(func(r *record.Record) { r.Nodes = 5 }), usual, checkEpoch, Fatal, "5 nodes, but this list has 3"},
		"restarted":        {recorded(func(r *record.Record) { r.Run = "zzzz/dddd" }), usual, checkEpoch, Warning, "restarted"},
		"failed over":      {recorded(func(r *record.Record) { r.Run = "aaaa/zzzz" }), usual, checkEpoch, Warning, "data set was replaced"},
		"not told then":    {recorded(func(r *record.Record) { r.Run = record.Unknown }), usual, checkEpoch, OK, "use 3 nodes"},
		"longer TTL":       {recorded(func(r *record.Record) { r.Steps[0].TTL = time.Minute }), usual, checkEpoch, Note, "locks with a TTL of 1m0s"},
		"faded TTL":        {recorded(func(r *record.Record) { r.Steps[0].TTL = time.Minute; r.Steps[0].Used = r.Born }), usual, checkEpoch, OK, "use 3 nodes"},
		"hostile TTL":      {recorded(func(r *record.Record) { r.Steps[0].TTL = 400 * 24 * time.Hour }), usual, checkEpoch, Warning, "damaged or hostile"},
		"hostile forgot":   {recorded(func(r *record.Record) { r.Forgot = 400 * 24 * time.Hour }), usual, checkEpoch, Warning, "redlock reset"},
		"of the future":    {recorded(func(r *record.Record) { r.Born += 2 * time.Hour }), usual, checkEpoch, Warning, "set back"},
		"persisted":        {healthy().but("PTTL redlock:epoch", int64(-1)), usual, checkEpoch, Warning, "record was removed"},
		"other version":    {healthy().but("GET redlock:epoch", []byte("3 new form")), usual, checkEpoch, Fatal, "another version"},
		"version 1":        {healthy().but("GET redlock:epoch", []byte("1 aaaa g 3 10000 0")), usual, checkEpoch, Fatal, "redlock reset"},
		"garbage":          {healthy().but("GET redlock:epoch", []byte("\x00 what?")), usual, checkEpoch, Fatal, "redlock reset"},
		"no string":        {healthy().but("GET redlock:epoch", redis.Error("WRONGTYPE Operation against a key")), usual, checkEpoch, Fatal, "redlock reset"},
		"record forbidden": {healthy().but("GET redlock:epoch", noperm), usual, checkEpoch, Fatal, "NOPERM"},
		"record gone":      {healthy().but("GET redlock:epoch", absent).but("PTTL redlock:epoch", int64(-2)), usual, checkEpoch, Warning, "other servers do"},
		"lacks a right":    {healthy().but("ACL DRYRUN locks PEXPIRE", "User locks has no permissions to run the 'pexpire' command"), usual, checkRights, Fatal, "+pexpire"},
		"cannot be asked":  {healthy().but("ACL", noperm).but("ACL WHOAMI", noperm).but("EVALSHA", noperm).but("SET", "OK"), usual, checkRights, Fatal, "+evalsha"},
		"lacks info":       {healthy().but("ACL DRYRUN locks CLIENT KILL", "no"), usual, checkRights, Warning, "+client|kill"},
		"not in turn":      {healthy().but("ACL DRYRUN locks ZADD", "no"), usual, checkRights, Note, "in order"},
		"no deletion":      {healthy().but("ACL DRYRUN locks DELEX", "no"), usual, checkRights, Note, "lacks +delex"},
		"unknown deletion": {healthy().but("ACL DRYRUN locks DEL", redis.Error("ERR Command 'DEL' not found")).but("ACL DRYRUN locks DEL ", "OK"), usual, checkRights, OK, "has the rights that locks need"},
		"no hints":         {healthy().but("ACL DRYRUN locks SUBSCRIBE", "no"), usual, checkHints, Note, "&__redis__:invalidate"},
		"no hints, 6.0":    {healthy().but("ACL DRYRUN locks SUBSCRIBE", "no").but("INFO server", "redis_version:6.0.16\r\nrun_id:aaaa\r\n"), usual, checkHints, Note, "lacks +subscribe; it sends"},
		"named alone":      {healthy().but("GET "+record.PrimaryKey, []byte("bbbb/dddd")), usual, checkStandby, Fatal, "not confirmed as the primary"},
		"alone, confirmed": {healthy().but("GET "+record.PrimaryKey, []byte("aaaa/dddd")), usual, checkStandby, OK, "is confirmed"},
		"slow":             {healthy(), Settings{Timeout: time.Minute, NodeTimeout: 1, MaxTTL: time.Second, Guard: true}, CheckLatency, Warning, "too late"},
		"broken":           {healthy().but("ROLE", errors.New("reset by peer")), usual, CheckReachable, Warning, "reset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := three(t, test.fake, test.settings)
			f := find(r.Nodes[0].Findings, test.check)
			assert.Equal(t, test.severity, f.Severity, "%+v", r.Nodes[0])
			assert.Contains(t, strings.Join([]string{f.Found, f.Means, f.Do}, "; "), test.says)
			if f.Severity >= Warning {
				assert.NotEmpty(t, f.Means)
			}
			for _, n := range r.Nodes {
				assert.GreaterOrEqual(t, r.Verdict, n.Worst())
			}
		})
	}
}

// recorded returns a healthy server with a changed record.
func recorded(change func(*record.Record)) *fake {
	return healthy().but("GET redlock:epoch", []byte(recordOf("aaaa/dddd", change)))
}

func TestClocksAreCompared(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ahead    time.Duration
		node     Severity
		together Severity
		says     string
	}{
		"near":    {time.Second, OK, OK, "ahead of ours"},
		"behind":  {-time.Second, OK, OK, "behind ours"},
		"off":     {3 * time.Second, Warning, OK, "second round if clocks differ by more than 2s"},
		"far off": {-9 * time.Second, Warning, Warning, "9s behind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := recorded(func(r *record.Record) { r.Off = record.Off(test.ahead) })
				f.clock = test.ahead
				r := three(t, f, usual)
				found := find(r.Nodes[0].Findings, checkClock)
				assert.Equal(t, test.node, found.Severity)
				assert.Contains(t, found.Found+found.Means, test.says)
				assert.Equal(t, test.together, find(r.Together, checkClock).Severity)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		// The memory guard uses the clock minus its offset at the time when the record was written.
		for name, test := range map[string]struct {
			ahead, off time.Duration
			severity   Severity
			says       string
		}{
			"set ahead":             {5 * time.Second, 0, Warning, "its clock was set after its epoch record was written, and is now 5s ahead of the other servers' clocks"},
			"set back":              {0, 30 * time.Second, Warning, "30s behind the other servers'"},
			"always apart":          {time.Minute, time.Minute, OK, ""},
			"by less than a second": {500 * time.Millisecond, 0, OK, ""},
		} {
			f := recorded(func(r *record.Record) { r.Off = test.off })
			f.clock = test.ahead
			r := three(t, f, usual)
			is := slices.ContainsFunc(r.Nodes[0].Findings, func(f Finding) bool {
				return f.Check == checkClock && strings.Contains(f.Found, cmp.Or(test.says, "its clock was set"))
			})
			assert.Equal(t, test.severity == Warning, is, name)
		}
		third := recorded(func(r *record.Record) { r.Off = time.Minute })
		second := recorded(func(r *record.Record) { r.Off = time.Hour })
		r := examine(t.Context(), []Server{recorded(nil).server("a"), second.server("b"), third.server("c")}, usual)
		explained(t, r.Together)
		assert.True(t, slices.ContainsFunc(r.Together, func(f Finding) bool {
			return f.Severity == Fatal && f.Found == "the clocks of 1 of 3 servers agree, and 2 are needed"
		}), "%v", r.Together)
	})

	// Half of a long round trip is not a difference of clocks.
	visits := []*visit{{timing: &Timing{Offset: 3 * time.Second, Uncertainty: 2 * time.Second}}}
	clocks(visits)
	assert.Equal(t, OK, find(visits[0].findings, checkClock).Severity)
}

func TestServersAreComparedWithEachOther(t *testing.T) {
	t.Parallel()
	a, b := healthy(), healthy()
	r := examine(t.Context(), []Server{a.server("one"), b.server("two")}, usual)
	explained(t, append(r.Together, r.Nodes[1].Findings...))
	same := find(r.Nodes[1].Findings, checkSame)
	assert.Equal(t, Fatal, same.Severity, "the same run_id")
	assert.Contains(t, same.Found, "one")
	assert.Equal(t, Warning, find(r.Together, checkNodes).Severity, "two servers")

	for n, want := range map[int]Severity{1: Warning, 2: Warning, 3: OK, 4: Note, 5: OK} {
		assert.Equal(t, want, count(n).Severity, n)
	}

	unused := examine(t.Context(), []Server{healthy().but("GET redlock:epoch", absent).server("new")}, usual)
	explained(t, unused.Nodes[0].Findings)
	assert.Equal(t, Note, find(unused.Nodes[0].Findings, checkEpoch).Severity, "no lock was taken yet")

	quarantined := examine(t.Context(), []Server{recorded(func(r *record.Record) { r.Nodes, r.Born, r.Basis = 1, r.Born+time.Hour, record.Asked }).server("a")}, usual)
	assert.Equal(t, Fatal, find(quarantined.Together, CheckQuarantine).Severity, "no quorum has a vote")
	assert.Equal(t, 1, quarantined.Answered)

	restarted := examine(t.Context(), []Server{recorded(func(r *record.Record) { r.Nodes, r.Run = 1, "zzzz/dddd" }).server("a")}, usual)
	assert.Equal(t, Fatal, find(restarted.Together, CheckQuarantine).Severity, "no quorum remembers")
}

func TestHangingServerDelaysNoReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := usual
		s.Timeout = 50 * time.Millisecond
		for _, command := range []string{"TIME", "ROLE", "GET redlock:epoch", "ACL WHOAMI", "ACL DRYRUN"} {
			r := three(t, healthy().but(command, nil), s)
			assert.Equal(t, 2, r.Answered, command)
			assert.Contains(t, find(r.Nodes[0].Findings, CheckReachable).Found, "does not answer within 50ms", command)
			if command == "ACL WHOAMI" {
				assert.NotEmpty(t, find(r.Nodes[0].Findings, checkVersion), "what it said until then stays")
			}
			assert.True(t, r.Nodes[1].Answered)
		}
	})
}

// TestDoctorChangesNothing: each request of the doctor only reads, or has arguments without effect.
func TestDoctorChangesNothing(t *testing.T) {
	t.Parallel()
	try := healthy().but("ACL WHOAMI", redis.Error("ERR unknown command 'ACL'"))
	dry := healthy()
	for _, f := range []*fake{try, dry} {
		three(t, f, usual)
		for _, sent := range f.sent {
			words := strings.Fields(sent)
			isWrite := slices.Contains([]string{"SET", "ZADD", "DEL", "DELEX", "DELIFEQ", "PEXPIRE", "ZREM", "ZREMRANGEBYSCORE", "HDEL", "HSET"}, words[0])
			assert.True(t, !isWrite || redlock.Reserved(words[1]), "%s: the key of a lock", sent)
			switch words[0] {
			case "TIME", "INFO", "ROLE", "GET", "MGET", "PTTL", "ACL", "ZRANGE", "ZRANK", "ZCARD", "ZSCORE", "EXISTS", "HGET", "SUBSCRIBE", "EVALSHA":
			case "CONFIG":
				assert.Equal(t, "GET", words[1], sent)
			case "CLUSTER":
				assert.Equal(t, "INFO", words[1], sent)
			case "SET", "ZADD":
				assert.Contains(t, words, "XX", sent)
				assert.Contains(t, words[1], "doctor:none", sent)
			case "DEL", "DELEX", "DELIFEQ", "PEXPIRE", "ZREM", "ZREMRANGEBYSCORE", "HDEL":
				assert.Contains(t, words[1], "doctor:none", sent)
			case "HSET": // of a field without a value: HSET key field value field
				assert.Equal(t, "HSET redlock:queue:{redlock:doctor:none} none  none", sent)
			case "SCRIPT": // the first script cannot be compiled
				assert.Contains(t, []string{"SCRIPT LOAD (", "SCRIPT EXISTS 0"}, sent)
			case "EVAL":
				assert.Equal(t, "EVAL return 1 0", sent)
			case "CLIENT":
				assert.Contains(t, []string{"CLIENT ID", "CLIENT KILL ID 9223372036854775807", "CLIENT TRACKING OFF", "CLIENT CACHING YES"}, sent)
			default:
				t.Errorf("%s", sent)
			}
		}
	}
}

func TestOpenDetectsPlainText(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][2]bool{
		"redis://10.0.0.1":            {true, false},
		"redis://:hunter2@10.0.0.1":   {true, true},
		"rediss://:hunter2@10.0.0.1":  {false, true},
		"redis://:hunter2@127.0.0.1":  {false, true},
		"redis://localhost:7001":      {false, false},
		"redis://[::1]:7001":          {false, false},
		"redis://redis.example:6379":  {true, false},
		"unix://:hunter2@/run/r.sock": {false, true},
	} {
		s, err := Open(url)
		require.NoError(t, err)
		assert.Equal(t, want, [2]bool{s.Clear, s.Password}, url)
		assert.NotContains(t, s.Name, "hunter2")
		v := &visit{server: s}
		v.transport()
		severity := OK
		if s.Clear {
			severity = map[bool]Severity{true: Warning, false: Note}[s.Password]
		}
		assert.Equal(t, severity, v.findings[0].Severity)
	}
	_, err := Open("redis://hunter2@host")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hunter2")
}

// A slackNode grants every request, and records the Slack of an acquisition.
type slackNode struct{ slack time.Duration }

func (n *slackNode) String() string { return "node" }
func (n *slackNode) Close() error   { return nil }

func (n *slackNode) Submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	if r.Op == protocol.OpAcquireFenced {
		n.slack = r.Slack
	}
	go to.Receive(slot, protocol.Reply{Outcome: protocol.Granted})
	return nil
}

// The doctor's limits are the limits of clients, whose packages do not export them.
func TestLimitsMatchTheLimitsOfClients(t *testing.T) {
	t.Parallel()
	open := func(node protocol.Node, ttl time.Duration) (*redlock.Locker, error) {
		return redlock.New([]protocol.Node{node}, redlock.MemoryGuard(false), redlock.Renew(false), redlock.TTL(ttl), redlock.NodeTimeout(time.Minute), redlock.MaxTTL(longestTTL))
	}
	_, err := open(&slackNode{}, longestTTL+time.Millisecond)
	require.ErrorContains(t, err, longestTTL.String())
	node := &slackNode{}
	locker, err := open(node, longestTTL)
	require.NoError(t, err)
	defer locker.Close()
	_, err = locker.TryAcquire(t.Context(), "x", redlock.Fenced())
	require.NoError(t, err)
	assert.Equal(t, tokenSlack, node.slack)
}

// proxy returns a server without the commands that report its identity.
func proxy() *fake {
	f := healthy()
	for _, section := range []string{"INFO server", "INFO replication", "INFO memory", "INFO persistence", "ROLE"} {
		f.but(section, redis.Error("unsupported command '"+strings.ToLower(strings.Fields(section)[0])+"'"))
	}
	return f
}

// nameless returns a server whose INFO has no run_id, and the given section replication. The record
// of its clients names the server by its data set.
func nameless(replication string) *fake {
	return healthy().but("INFO server", "redis_version:7.2.4\r\nrun_id:\r\n").but("INFO replication", replication).
		but("EVAL ", []byte("")).but("GET redlock:epoch", []byte(recordOf("dddd/dddd", nil)))
}

// shards returns the answer to CLUSTER INFO in a cluster of n shards.
func shards(n int) string {
	return fmt.Sprintf("cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_size:%d\r\n", n)
}

// TestAcceptedWarningBecomesANote: a fatal finding of the same check stays fatal.
func TestAcceptedWarningBecomesANote(t *testing.T) {
	t.Parallel()
	r := &Report{
		Nodes:    []NodeReport{{Findings: []Finding{{Severity: Warning, Check: checkTransport}, {Severity: Warning, Check: checkClock}}}},
		Together: []Finding{{Severity: Warning, Check: checkNodes}},
	}
	r.Accept([]string{checkTransport, checkNodes})
	assert.Equal(t, Note, r.Nodes[0].Findings[0].Severity)
	assert.Equal(t, Warning, r.Verdict)
	r.Nodes[0].Findings[1].Check = checkMode
	r.Accept([]string{checkMode})
	assert.Equal(t, Note, r.Verdict)
	r.Nodes[0].Findings[1].Severity = Fatal
	r.Accept(Acceptable)
	assert.Equal(t, Fatal, r.Verdict)
}
