package subject

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tally counts cycles of callers.
type tally struct {
	mu      sync.Mutex
	cycles  []int // by caller
	total   int
	wrong   int
	onCycle func(total int)
}

func (c *tally) Cycle(caller int, began time.Time, acquire, release time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cycles[caller]++
	c.total++
	if acquire <= 0 || release <= 0 || began.IsZero() {
		c.wrong++
	}
	c.onCycle(c.total)
}

// cycled is what callers did until there were enough cycles, which left no keys.
func cycled(t *testing.T, urls []string, callers, enough int) *tally {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &tally{cycles: make([]int, callers), onCycle: func(total int) {
		if total == enough {
			cancel()
		}
	}}
	require.NoError(t, drive(ctx, urls, Config{TTL: 10 * time.Second, Callers: callers}, c.Cycle))
	assert.GreaterOrEqual(t, c.total, enough)
	assert.Zero(t, c.wrong)
	assert.Empty(t, locks(t, urls, "bench:limit:*"))
	return c
}

// The limit is a yardstick only as long as every server does all of the work.
func TestLimitHasEveryServerDoTheWork(t *testing.T) {
	f := start(t)
	for _, u := range f.URLs() {
		do(t, u, "CONFIG", "RESETSTAT")
	}
	done := cycled(t, f.URLs(), 8, 2000)
	for caller, n := range done.cycles {
		assert.Positive(t, n, "caller %d", caller)
	}
	for _, u := range f.URLs() {
		assert.Equal(t, done.total, calls(t, u, "set"))
		released := 0
		for _, command := range []string{"delex", "delifeq", "evalsha"} {
			released += max(0, calls(t, u, command)-1) // the first asks whether it is there
		}
		assert.Equal(t, done.total, released)
	}
}

// Where the servers have a compare-and-delete of their own redquorum releases with it, and a
// yardstick that ran a script would be no limit.
func TestLimitReleasesAsCheaplyAsEachServerCan(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls := map[string]int{} // by command, of names that were locked
	var urls []string
	for _, native := range []string{"DELEX", "DELIFEQ", "EVALSHA"} {
		r := miniredis.RunT(t)
		require.NoError(t, r.Server().Register("DELIFEQ", func(p *server.Peer, _ string, args []string) {
			if held, err := r.Get(args[0]); err == nil && held == args[1] {
				r.Del(args[0])
				p.WriteInt(1)
				return
			}
			p.WriteInt(0)
		}))
		r.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
			deletes := command == "DELEX" || command == "DELIFEQ"
			if deletes && command != native {
				says := "ERR unknown command"
				if native == "EVALSHA" && command == "DELEX" { // there, and not permitted
					says = "NOPERM User default has no permissions to run the 'delex' command"
				}
				p.WriteError(says)
				return true
			}
			if (deletes || command == "EVALSHA") && !slices.Contains(args, "bench:limit:") {
				mu.Lock()
				calls[command]++
				mu.Unlock()
			}
			return false
		})
		urls = append(urls, "redis://"+r.Addr())
	}
	total := cycled(t, urls, 2, 50).total
	assert.Equal(t, map[string]int{"DELEX": total, "DELIFEQ": total, "EVALSHA": total}, calls)
}

// calls is how often the server has run the command; one that it does not know, never.
func calls(t *testing.T, url, command string) int {
	stats, err := redis.String(do(t, url, "INFO", "commandstats"), nil)
	require.NoError(t, err)
	m := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+),`).FindStringSubmatch(stats)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

func TestLimitEndsWithAnErrorOfAServer(t *testing.T) {
	f := start(t)
	for _, c := range []struct {
		says    string
		breakIt func() error
	}{
		{"NOSCRIPT", func() error { do(t, f.URLs()[4], "SCRIPT", "FLUSH"); return nil }},
		{"EOF|reset|aborted|pipe", func() error { return f.Kill(t.Context(), 4) }},
	} {
		var once sync.Once
		broken := make(chan error, 1)
		done := &tally{cycles: make([]int, 2)}
		done.onCycle = func(int) { once.Do(func() { go func() { broken <- c.breakIt() }() }) }
		err := drive(within(t, testLimit), f.URLs(), Config{TTL: ttl, Callers: 2}, done.Cycle)
		require.NoError(t, <-broken)
		require.Error(t, err)
		assert.Regexp(t, c.says, err.Error())
		assert.Contains(t, err.Error(), strings.TrimPrefix(f.URLs()[4], "redis://"))
	}
}

func TestLimitAnswers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"+OK\r\n": "", ":1\r\n": "",
		":0\r\n": "refused", "$-1\r\n": "refused", "-ERR no\r\n": "-ERR no", "$5\r\n": "it answers", "\n": "it answers",
	} {
		err := limitAnswer([]byte(in))
		if want == "" {
			require.NoError(t, err, "%q", in)
		} else {
			require.ErrorContains(t, err, want, "%q", in)
		}
	}
}
