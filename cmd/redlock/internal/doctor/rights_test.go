package doctor

import (
	"context"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// start starts servers, and ends them with the test.
func start(t *testing.T, opts fleet.Options) []string {
	t.Helper()
	testenv.NeedRedis(t)
	opts.Volatile = true
	f := testenv.Servers(t, fleet.Process, opts)
	return f.URLs()
}

func do(t *testing.T, url string, words ...any) any {
	t.Helper()
	c, err := redis.DialURL(url)
	require.NoError(t, err)
	defer c.Close()
	v, err := c.Do(words[0].(string), words[1:]...)
	require.NoError(t, err)
	return v
}

// skipWithoutChannels skips the test on a server of version 6.0, which has no ACL rules for
// channels.
func skipWithoutChannels(t *testing.T, url string) {
	t.Helper()
	if info := string(do(t, url, "INFO", "server").([]byte)); strings.Contains(info, "\nredis_version:6.0.") {
		t.Skip("since Redis 6.2: ACL rules for channels")
	}
}

// permitted returns the URL of a user with only the given rights.
func permitted(t *testing.T, url string, grants ...string) string {
	t.Helper()
	words := []any{"ACL", "SETUSER", "locks", "reset", "on", ">hunter2", "~job*", "~redlock:*"}
	for _, g := range grants {
		for rule := range strings.FieldsSeq(g) {
			words = append(words, rule)
		}
	}
	do(t, url, words...)
	return strings.Replace(url, "//", "//locks:hunter2@", 1)
}

// advised returns the doctor's grants for the commands that the server knows.
func advised(t *testing.T, url string) (grants []string) {
	t.Helper()
	for _, p := range purposes("") {
		for _, r := range p.rights {
			if !r.newer || do(t, url, "COMMAND", "INFO", r.words[0]).([]any)[0] != nil {
				grants = append(grants, r.grant)
			}
		}
	}
	return grants
}

// dryRuns has the grants of a user with and without ACL DRYRUN, which Redis before 7 does not know.
var dryRuns = map[string][]string{"asked": {"+acl|whoami", "+acl|dryrun"}, "tried": nil}

func examineOne(t *testing.T, url string) NodeReport {
	t.Helper()
	s, err := Open(url)
	require.NoError(t, err)
	return examine(t.Context(), []Server{s}, usual).Nodes[0]
}

func TestMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	url := start(t, fleet.Options{Nodes: 1})[0]
	skipWithoutChannels(t, url)
	for how, more := range dryRuns {
		t.Run(how, func(t *testing.T) {
			all := advised(t, url)
			for i, grant := range all {
				n := examineOne(t, permitted(t, url, append(slices.Delete(slices.Clone(all), i, i+1), more...)...))
				lacks := slices.DeleteFunc(slices.Clone(n.Findings), func(f Finding) bool { return f.Check != checkRights && f.Check != checkHints || f.Severity == OK })
				if grant == "+client|id" { // this right has two purposes
					lacks = slices.DeleteFunc(lacks, func(f Finding) bool { return f.Check == checkHints })
				}
				require.Len(t, lacks, 1, grant)
				assert.True(t, strings.HasSuffix(lacks[0].Found, " lacks "+grant), "%s: %s", grant, lacks[0].Found)
				assert.Contains(t, lacks[0].Do, "permit "+grant)
			}
			n := examineOne(t, permitted(t, url, more...))
			var said []string
			for _, f := range n.Findings {
				if f.Check == checkRights || f.Check == checkHints {
					_, list, _ := strings.Cut(strings.SplitN(f.Do, ",", 2)[0], "permit ")
					said = append(said, list)
				}
			}
			assert.Equal(t, strings.Join(all, " "), strings.Join(said, " "), "a user who may do nothing is told all")
			n = examineOne(t, permitted(t, url, append(all, more...)...))
			for _, check := range []string{checkRights, checkHints} {
				assert.Equal(t, OK, find(n.Findings, check).Severity)
			}
		})
	}
	assert.Zero(t, do(t, url, "DBSIZE"), "nothing was changed")
}

// doubts collects the doubts of package pool about its servers.
type doubts struct {
	slog.Handler
	mu   sync.Mutex
	text []string
}

func (d *doubts) Handle(_ context.Context, r slog.Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool { d.text = append(d.text, a.String()); return true })
	return nil
}

func (d *doubts) Enabled(context.Context, slog.Level) bool { return true }

// TestAdvisedRightsAreSufficient: with the rights in the doctor's advice, all operations of locks
// work.
func TestAdvisedRightsAreSufficient(t *testing.T) {
	t.Parallel()
	theAdviceIsEnough(t, "", "~job*", "~redlock:*")
}

// TestKeyPatternsAreSufficient: docs/OPERATING.md lists the patterns.
func TestKeyPatternsAreSufficient(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../../docs/OPERATING.md")
	require.NoError(t, err)
	assert.Contains(t, strings.Join(strings.Fields(string(guide)), " "), "`~PREFIX* ~redlock:*[{[]PREFIX* ~redlock:primary` is enough")
	theAdviceIsEnough(t, "app:", "~app:*", "~redlock:*[{[]app:*", "~redlock:primary")
}

func theAdviceIsEnough(t *testing.T, prefix string, patterns ...string) {
	var log doubts
	open := func() *redlock.Locker {
		var urls []string
		for _, url := range start(t, fleet.Options{Nodes: 3}) {
			skipWithoutChannels(t, url)
			of := permitted(t, url, append(append([]string{"resetkeys"}, patterns...), advised(t, url)...)...)
			urls = append(urls, of)
			c, err := redis.DialURL(of)
			require.NoError(t, err)
			_, err = c.Do("GET", "redlock:readers:{other:job}")
			assert.Equal(t, prefix == "", err == nil, "%v", err)
			c.Close()
		}
		nodes, err := pool.OpenWith(urls, pool.Log(slog.New(&log)), pool.DialTimeout(time.Minute), pool.StallTimeout(time.Minute))
		require.NoError(t, err)
		l, err := redlock.New(nodes, redlock.TTL(10*time.Second), redlock.NodeTimeout(8*time.Second), redlock.Prefix(prefix))
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	l := open()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for name, opts := range map[string][]redlock.Option{
		"job:plain": nil, "job:fenced": {redlock.Fenced()}, "job:fair": {redlock.Fair()}, "job:both": {redlock.Fenced(), redlock.Fair()},
		"job:read": {redlock.Shared()}, "job:permits": {redlock.Permits(2), redlock.Fenced()}, "job:{of a tag}": {redlock.Fenced(), redlock.Fair()},
	} {
		lock, err := l.Acquire(ctx, name, opts...)
		require.NoError(t, err, name)
		waited := make(chan error)
		go func() { // takes a ticket in the queue, and gets hints
			next, err := l.Acquire(ctx, name, opts...)
			if err == nil {
				err = next.Release(ctx)
			}
			waited <- err
		}()
		require.NoError(t, lock.Extend(ctx), name)
		in, err := l.Inspect(ctx, name)
		require.NoError(t, err, name)
		_, _, held := in.Holder()
		assert.True(t, held || lock.Permit() > 0, name)
		require.NoError(t, lock.RaiseMark(ctx, 1, time.Minute), name)
		require.NoError(t, lock.Release(ctx), name)
		require.NoError(t, <-waited, name)
	}
	require.NoError(t, l.Close())
	assert.Empty(t, log.text, "and nothing is done without")
}

// TestDocumentationListsTheAdvisedRights: the list in pool/doc.go is copied from code.
func TestDocumentationListsTheAdvisedRights(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../../../pool/doc.go")
	require.NoError(t, err)
	documented := regexp.MustCompile(`[+&][a-z_:|]*[a-z]`).FindAllString(string(source), -1)
	want := []string{
		"+select",         // needed if the URL names a database
		"+client|setname", // for people
		"+cluster|info",   // in cluster mode
	}
	for _, p := range purposes("") {
		for _, r := range p.rights {
			want = append(want, strings.Fields(r.grant)...)
		}
	}
	for _, list := range []*[]string{&documented, &want} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	assert.Equal(t, want, documented)
}

func TestUnusableServersAreReported(t *testing.T) {
	t.Parallel()
	for mode, says := range map[fleet.Mode]string{fleet.Sentinel: "it is a Sentinel", fleet.ClusterNode: "it is part of a Redis Cluster"} {
		n := examineOne(t, start(t, fleet.Options{Nodes: 1, Mode: mode})[0])
		assert.True(t, n.Answered)
		assert.Equal(t, Fatal, n.Worst())
		assert.Contains(t, find(n.Findings, checkMode).Found, says)
		assert.Empty(t, find(n.Findings, checkEpoch).Check, "what follows from that is not told: %+v", n.Findings)
		for _, f := range n.Findings {
			assert.NotContains(t, f.Found+f.Means+f.Do, "with args beginning")
		}
	}
}
