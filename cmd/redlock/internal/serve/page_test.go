package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"
)

// held returns a lock in the form of the page.
func held(name, holder string) survey.LockState {
	left := int64(9000)
	return survey.LockState{
		Name: name, State: "held", Kind: "exclusive", Votes: 3, Servers: 3, Holder: holder, Owner: "web-3", Left: &left,
		Keys: []survey.HeldKey{{Server: "a", State: "holds", Holder: holder, Left: &left}},
	}
}

// showing returns a Look that shows these locks.
func showing(locks ...survey.LockState) func(context.Context) (*survey.Survey, error) {
	return func(context.Context) (*survey.Survey, error) {
		return &survey.Survey{Locks: append([]survey.LockState{}, locks...), Servers: []survey.ServerState{{Server: "a", Findings: []doctor.Finding{}}}}, nil
	}
}

func (c *client) survey(query string) (v view) {
	c.t.Helper()
	a := c.ask("GET", "/v1/survey"+query, "")
	require.Equal(c.t, http.StatusOK, a.status, a.body)
	require.NoError(c.t, json.Unmarshal([]byte(a.body), &v))
	return v
}

func names(v view) (all []string) {
	for _, l := range v.Locks {
		all = append(all, l.Name)
	}
	return all
}

// TestOneSurveyIsForAll: all viewers share a survey, regardless of their number and their requests.
// Without a request there is no survey, and surveys take at most half of the time.
func TestOneSurveyIsForAll(t *testing.T) {
	surveys, takes := 0, 100*time.Millisecond
	page := &Page{Look: func(context.Context) (*survey.Survey, error) {
		surveys++
		time.Sleep(takes)
		return nil, errors.New("no luck")
	}}
	served(t, Config{Page: page}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := &client{t: t, server: s}
		view := func(end time.Time) {
			for seen := int64(0); time.Now().Before(end); {
				v := c.survey("?wait_ms=60000&seen=" + text(seen))
				assert.Equal(t, "no luck", v.Error)
				assert.Greater(t, v.Version, seen)
				seen = v.Version
			}
		}
		var viewers sync.WaitGroup
		for range 50 {
			viewers.Go(func() { view(time.Now().Add(10 * time.Second)) })
		}
		viewers.Wait()
		assert.InDelta(t, 10, surveys, 1)
		before := surveys
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, surveys, before+1)
		assert.Less(t, c.survey("").Age, int64(1000), "what is old is not shown")

		surveys, takes = 0, 5*time.Second
		view(time.Now().Add(100 * time.Second))
		assert.LessOrEqual(t, surveys, 11)
	})
}

func TestAnswerHasTheRequestedFields(t *testing.T) {
	var locks []survey.LockState
	for i := range 300 {
		locks = append(locks, held(fmt.Sprintf("lock-%03d", i), "1"))
	}
	locks[250].State = "stuck"
	locks[7].Owner = "Encoder"
	served(t, Config{Page: &Page{Look: showing(locks...)}}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := &client{t: t, server: s}
		all := c.survey("?count=1000")
		assert.Len(t, all.Locks, 300)
		assert.Equal(t, "lock-250", all.Locks[0].Name, "what needs a look is first")
		assert.Nil(t, all.Locks[0].Keys)
		assert.Equal(t, []string{"lock-009", "lock-010"}, names(c.survey("?from=10&count=2")))
		assert.Equal(t, []string{"lock-298", "lock-299"}, names(c.survey("?from=9999&count=2")), "the last page")
		assert.Equal(t, []string{"lock-007"}, names(c.survey("?filter=eNcOder")))
		assert.Empty(t, names(c.survey("?filter=nothing&from=5")))
		v := c.survey("?filter=stuck&name=lock-007")
		assert.Equal(t, 1, v.Matching)
		assert.Equal(t, 300, v.Total)
		require.Len(t, v.Lock.States, 1)
		assert.Len(t, v.Lock.States[0].Keys, 1)
		for query, says := range map[string]string{"?from=x": "from=x", "?count=-1": "count=-1", "?count=1000000": "at most", "?wait_ms=5": "seen", "?events_after=": ""} {
			if a := c.ask("GET", "/v1/survey"+query, ""); says != "" {
				assert.Equal(t, http.StatusBadRequest, a.status, query)
				assert.Contains(t, a.problem.Detail, says)
			}
		}
	})
}

// TestEventsComeFromTheLockerAndSurveys: surveys show events by their differences.
func TestEventsComeFromTheLockerAndSurveys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		surveys := []*survey.Survey{
			{Locks: []survey.LockState{held("a", "1"), held("b", "2")}, Servers: []survey.ServerState{{Server: "s"}, {Server: "r"}, {Server: "q"}}},
			{Locks: []survey.LockState{held("a", "3"), held("c", "4")}, Servers: []survey.ServerState{{Server: "s", Error: "down"}, {Server: "r"}, {Server: "q"}}},
			{Servers: []survey.ServerState{{Server: "s", Error: "down"}, {Server: "r", Error: "down"}, {Server: "q"}}},
		}
		page := &Page{Look: func(context.Context) (*survey.Survey, error) {
			next := surveys[0]
			surveys = surveys[1:]
			return next, nil
		}}
		servers := redlocktest.Start(t)
		s := New(servers.Locker(redlock.Observe(page)), Config{TTL: 10 * time.Second, Page: page})
		c := open(t, s, `{"owner":"web-3"}`)
		lease := c.take(`{"name":"mine"}`).lease.Lease
		c.ask("DELETE", "/v1/locks/"+lease, "")
		synctest.Wait()
		v := c.survey("?name=mine")
		require.Len(t, v.Lock.Events, 2)
		assert.Equal(t, "released", v.Lock.Events[0].What)
		assert.Equal(t, "acquired", v.Lock.Events[1].What)
		assert.Equal(t, 1, v.Sessions.Total)
		assert.Equal(t, "web-3", v.Sessions.Sessions[0].Owner)

		seen := v.Events[0].Number
		v = c.survey("?wait_ms=5000&seen=" + text(v.Version) + "&events_after=" + text(seen))
		told := map[string]string{}
		for _, e := range v.Events {
			told[e.Lock] = e.What + ": " + e.Text
		}
		assert.Equal(t, map[string]string{
			"a": "held: passed from web-3 (1) to web-3 (3)", "b": "free: was held by web-3 (2)", "c": "held: by web-3 (4)", "": "down: s: down",
		}, told)
		v = c.survey("?wait_ms=5000&seen=" + text(v.Version) + "&events_after=" + text(v.Events[0].Number))
		require.Len(t, v.Events, 1, "most servers are silent, and may still hold what is not seen")
		assert.Equal(t, "down", v.Events[0].What)
		c.ask("DELETE", "/v1/session", "")
		endNow(s)
	})
}

// TestWaitingClientsAreShown: they are shown like waiters of other processes, but not at once,
// because a new client may be about to get its lock.
func TestWaitingClientsAreShown(t *testing.T) {
	lock := held("job", "1")
	lock.Waiters.Count = 4
	served(t, Config{Page: &Page{Look: showing(lock, held("other", "1"))}}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		holder := open(t, s, `{"ttl_ms":60000}`)
		holder.take(`{"name":"other"}`)
		const wish = `{"name":"job","permits":2`
		holder.take(wish + "}")
		_, err := servers.Locker().Acquire(t.Context(), "job", redlock.Permits(2))
		require.NoError(t, err)
		ctx, leave := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		for _, owner := range []string{"second", "first"} {
			w := open(t, s, `{"owner":"`+owner+`","ttl_ms":60000}`)
			waiters.Go(func() { w.askUnder(ctx, "POST", "/v1/locks", wish+`,"wait_ms":60000}`) })
		}
		synctest.Wait()
		isWaiting := func(n int) view {
			t.Helper()
			v := holder.survey("?name=job")
			assert.Equal(t, n, v.Lock.States[0].Waiting)
			return v
		}
		isWaiting(4)
		time.Sleep(5 * time.Second)
		v := isWaiting(5)
		assert.Equal(t, 4, v.Lock.States[0].Waiters.Count)
		assert.Equal(t, survey.Members{Count: 2, First: []survey.Member{{Owner: "first", Waited: 5000, Left: 55_000}, {Owner: "second", Waited: 5000, Left: 55_000}}}, v.Lock.States[0].Clients)
		assert.Equal(t, []string{"job", "other"}, names(v))
		assert.Zero(t, v.Locks[1].Waiting)
		waits := map[string][]string{}
		for _, session := range v.Sessions.Sessions {
			waits[session.Owner] = session.Waits
		}
		assert.Equal(t, map[string][]string{"": {}, "first": {"job"}, "second": {"job"}}, waits)

		leave()
		waiters.Wait()
		time.Sleep(2 * time.Second)
		isWaiting(4)
	})
}

// TestClientsAreShownOnce: they are shown at the first held permit of a lock. If two clients of
// this process wait, neither is in the queue of the servers while this process holds the whole
// lock. While another process holds the lock, one of them is in the queue.
func TestClientsAreShownOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		permits, holding  int // by this process
		inQueue, expected int
	}{
		{"its own lock", 1, 1, 0, 2},
		{"its own lock, for which others wait", 1, 1, 3, 5},
		{"the lock of another", 1, 0, 1, 2},
		{"the lock of another, for which others wait", 1, 0, 4, 5},
		{"servers without a queue", 1, 0, 0, 2},
		{"a permit of its own, and one of another", 2, 1, 1, 2},
		{"permits of others", 2, 0, 2, 2},
	} {
		s := &survey.Survey{}
		for _, n := range []int{2, 1, 3} {
			l := held("job", "1")
			l.Permit = &n
			s.Locks = append(s.Locks, l)
		}
		s.Locks[1].Waiters.Count = c.inQueue
		clients{"job": {waiting: make([]survey.Member, 2), permits: c.permits, holding: c.holding}, "none": {waiting: make([]survey.Member, 1), permits: 1}}.addTo(s)
		assert.Equal(t, []int{0, c.expected, 0}, []int{s.Locks[0].Waiting, s.Locks[1].Waiting, s.Locks[2].Waiting}, c.name)
	}
}

// TestHealthIsOneWord: the other findings do not matter.
func TestHealthIsOneWord(t *testing.T) {
	t.Parallel()
	latency := doctor.Finding{Check: "latency", Severity: doctor.OK}
	of := func(check string, severity doctor.Severity) []doctor.Finding {
		return []doctor.Finding{latency, {Check: check, Severity: severity}}
	}
	for _, c := range []struct {
		server   survey.ServerState
		expected string
	}{
		{survey.ServerState{}, ""},
		{survey.ServerState{Error: "refused", Findings: of("quarantine", doctor.Warning)}, "down"},
		{survey.ServerState{Error: "refused"}, "down"},
		{survey.ServerState{Findings: of("reachable", doctor.Warning)}, "slow"},
		{survey.ServerState{Findings: of("quarantine", doctor.Warning)}, "in quarantine"},
		{survey.ServerState{Findings: of("quarantine", doctor.Note)}, "well"},
		{survey.ServerState{Findings: of("latency", doctor.Note)}, "slow"},
		{survey.ServerState{Findings: of("latency", doctor.Warning)}, "slow"},
		{survey.ServerState{Findings: of("role", doctor.Fatal)}, "unfit"},
		{survey.ServerState{Findings: of("persistence", doctor.Note)}, "well"},
		{survey.ServerState{Findings: of("memory", doctor.Warning)}, "well"},
	} {
		assert.Equal(t, c.expected, c.server.JudgeHealth(), "%+v", c.server)
	}
}

// TestHistoryIsBounded: it keeps the latest events.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	var h history
	for i := range 3*keptEvents + 7 {
		h.add(time.Now(), survey.Event{Lock: text(int64(i % 2))})
	}
	assert.Len(t, h.ring, keptEvents)
	latest := h.since(0, func(*survey.Event) bool { return true })
	require.Len(t, latest, mostEvents)
	for i, e := range latest {
		require.Equal(t, int64(3*keptEvents+7-i), e.Number)
	}
	assert.Len(t, h.since(3*keptEvents, func(*survey.Event) bool { return true }), 7)
	assert.Len(t, h.since(3*keptEvents, func(e *survey.Event) bool { return e.Lock == "1" }), 3)
}

// TestPageEndsAtOnce: neither waiting viewers nor a survey in progress delay the end.
func TestPageEndsAtOnce(t *testing.T) {
	page := &Page{Look: func(ctx context.Context) (*survey.Survey, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	served(t, Config{Page: page}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		done := make(chan answer)
		go func() { done <- (&client{t: t, server: s}).ask("GET", "/v1/survey?seen=0&wait_ms=60000", "") }()
		synctest.Wait()
		began := time.Now()
		endNow(s)
		assert.Equal(t, api.KindEnding, (<-done).problem.Kind)
		assert.Less(t, time.Since(began), time.Second)
	})
}
