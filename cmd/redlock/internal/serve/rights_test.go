package serve

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
	"github.com/redquorum/redquorum/redlocktest"
)

// twoClients is a file with two clients. Their tokens are their repeated labels.
func twoClients(t testing.TB) *file {
	text := ""
	for _, label := range []string{"billing", "payroll"} {
		text += fmt.Sprintf("- {label: %[1]s, sha256: [%[2]x], subjects: [\"CN=%[1]s\"], lock: [%[1]s, %[1]s/**]}\n", label, sum(tokenOf(label)))
	}
	table, err := rights.Parse([]byte(text))
	require.NoError(t, err)
	return newFile(table)
}

func sum(token string) [32]byte { return sha256.Sum256([]byte(token)) }

func tokenOf(label string) string { return strings.Repeat(label, 4) }

// as returns a client with a token.
func as(t *testing.T, s *Server, label string) *client {
	return &client{t: t, server: s, headers: map[string]string{"Authorization": "Bearer " + tokenOf(label)}}
}

// secret is a text that only billing may get.
const secret = "billing-secret"

// withTwo runs a test of a server with a page and an office, while billing holds a lock. The server
// also belongs to payroll.
func withTwo(t *testing.T, test func(t *testing.T, f *file, servers *redlocktest.Servers, billing, payroll *client, lease string)) {
	synctest.Test(t, func(t *testing.T) {
		f := twoClients(t)
		page := &Page{Look: showing(held("billing/a", secret), held("payroll/a", "1"))}
		page.events.add(time.Now(), survey.Event{Lock: "billing/a", Text: secret}, survey.Event{Lock: "payroll/a, billing/a", Text: secret}, survey.Event{Lock: "payroll/a", Text: "mine"})
		servers, s := start(t, Config{Rights: f, Page: page, Office: "billing/office", Candidate: secret})
		billing := as(t, s, "billing")
		a := billing.ask("POST", "/v1/sessions", `{"owner":"`+secret+`","ttl_ms":3600000}`)
		billing.session = a.session.Session
		lease := billing.take(`{"name":"billing/a","ttl_ms":3600000}`).lease.Lease
		test(t, f, servers, billing, as(t, s, "payroll"), lease)
		assert.True(t, billing.ask("GET", "/v1/locks/"+lease, "").lease.Held)
		assert.Equal(t, http.StatusOK, billing.ask("GET", "/v1/session", "").status)
		assert.False(t, free(t, servers, "billing/a"))
		endNow(s)
	})
}

// TestEachRouteRequiresItsRight: each route requires a token, and does nothing for a client with another
// client's session and lease but without the right.
func TestEachRouteRequiresItsRight(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{"POST /v1/locks": `{"name":"billing/a"}`}
	forAll := map[string]int{
		"POST /v1/sessions": http.StatusCreated, "GET /readyz": http.StatusOK, "GET /healthz": http.StatusOK,
		"GET /metrics": http.StatusOK, "GET /openapi.json": http.StatusOK, "GET /ui/": http.StatusOK,
	}
	withTwo(t, func(t *testing.T, f *file, servers *redlocktest.Servers, billing, payroll *client, lease string) {
		s := payroll.server.(*Server)
		payroll.session = billing.session
		unknown := &client{t: t, server: s, session: billing.session}
		for route := range s.routes() {
			method, path, _ := strings.Cut(strings.ReplaceAll(route, "{lease}", lease), " ")
			path += "?name=billing/a&token=1"
			a := payroll.ask(method, path, bodies[route])
			assert.NotContains(t, a.body, secret, route)
			if status, ok := forAll[route]; ok {
				assert.Equal(t, status, a.status, "%s: %s", route, a.body)
			} else {
				assert.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, a.status, "%s: %s", route, a.body)
			}
			a = unknown.ask(method, path, bodies[route])
			assert.NotContains(t, a.body, secret, route)
			if route != "GET /ui/" {
				assert.Equal(t, http.StatusUnauthorized, a.status, "%s: %s", route, a.body)
			}
		}
		assert.Equal(t, http.StatusUnauthorized, unknown.ask("GET", "/nothing", "").status)
	})
}

// TestLeaseOfAnotherClientIsHidden: no request shows it.
func TestLeaseOfAnotherClientIsHidden(t *testing.T) {
	t.Parallel()
	withTwo(t, func(t *testing.T, f *file, servers *redlocktest.Servers, billing, payroll *client, lease string) {
		mine := as(t, payroll.server.(*Server), "payroll")
		mine.session = mine.ask("POST", "/v1/sessions", "").session.Session
		forged := *payroll
		forged.session = billing.session
		stream := forged
		stream.headers = map[string]string{"Authorization": payroll.headers["Authorization"], "Accept": "text/event-stream"}
		repeated := *mine
		repeated.headers = map[string]string{"Authorization": payroll.headers["Authorization"], "Idempotency-Key": "1"}
		billing.headers["Idempotency-Key"] = "1"
		billing.take(`{"name":"billing/b"}`)
		delete(billing.headers, "Idempotency-Key")
		const locks = "POST /v1/locks"
		for _, c := range []struct {
			by            *client
			request, body string
			status        int
			pattern       string
		}{
			{mine, locks, `{"name":"billing/a"}`, http.StatusForbidden, "billing/a"},
			{mine, locks, `{"names":["payroll","zebra"]}`, http.StatusForbidden, "zebra"},
			{mine, locks, `{"name":"billing*"}`, http.StatusForbidden, `billing\*`},
			{mine, locks, `{"name":"payroll","names":["billing/a"]}`, http.StatusBadRequest, ""},
			{mine, locks + "?name=billing/a", `{"name":"payroll/x"}`, http.StatusCreated, ""},
			{&repeated, locks, `{"name":"billing/b"}`, http.StatusForbidden, "billing/b"},
			{&repeated, locks, `{"name":"payroll/b"}`, http.StatusCreated, ""},
			{&forged, locks, `{"name":"payroll/c"}`, http.StatusNotFound, ""},
			{&forged, "GET /v1/session", ``, http.StatusNotFound, ""},
			{&forged, "DELETE /v1/session", ``, http.StatusNotFound, ""},
			{&stream, "GET /v1/session?bound=true", ``, http.StatusNotFound, ""},
			{mine, "GET /v1/locks/" + lease, ``, http.StatusNotFound, ""},
			{mine, "DELETE /v1/locks/" + lease, ``, http.StatusNotFound, ""},
			{mine, "POST /v1/locks/" + lease + "/extend", ``, http.StatusNotFound, ""},
			{mine, fmt.Sprintf("DELETE /v1/locks/%%%02x%s", lease[0], lease[1:]), ``, http.StatusNotFound, ""},
			{mine, "DELETE /v1/locks/" + strings.ToLower(lease), ``, http.StatusNotFound, ""},
			{mine, "DELETE /v1/locks/x%2F..%2F" + lease, ``, http.StatusNotFound, ""},
			{mine, "DELETE /ui/..%2Fv1/locks/" + lease, ``, http.StatusMethodNotAllowed, ""},
			{mine, "GET /v1/locks?name=billing/a", ``, http.StatusForbidden, "billing/a"},
			{mine, "GET /v1/survey?name=billing/a", ``, http.StatusForbidden, "billing/a"},
			{mine, "GET /leader", ``, http.StatusForbidden, "billing/office"},
		} {
			method, path, _ := strings.Cut(c.request, " ")
			a := c.by.ask(method, path, c.body)
			assert.Equal(t, c.status, a.status, "%s %s: %s", c.request, c.body, a.body)
			assert.NotContains(t, a.body, secret, "%s %s", c.request, c.body)
			assert.Equal(t, c.pattern, a.problem.Pattern, "%s %s", c.request, c.body)
			if c.status == http.StatusForbidden {
				assert.Contains(t, a.problem.Detail, `"payroll" may not `)
				assert.NotEmpty(t, a.problem.Right)
			}
		}
	})
}

// TestPageShowsOnlyPermittedLocks.
func TestPageShowsOnlyPermittedLocks(t *testing.T) {
	t.Parallel()
	withTwo(t, func(t *testing.T, f *file, servers *redlocktest.Servers, billing, payroll *client, lease string) {
		go as(t, payroll.server.(*Server), "billing").ask("POST", "/v1/locks", `{"name":"billing/a","wait_ms":10000,"owner":"`+secret+`"}`)
		time.Sleep(2 * time.Second)
		assert.NotContains(t, payroll.ask("GET", "/v1/survey", "").body, secret)
		v := payroll.survey("?name=payroll/a")
		assert.Equal(t, []string{"payroll/a"}, names(v))
		assert.Equal(t, 1, v.Total)
		assert.Zero(t, v.Sessions.Total)
		own := billing.ask("GET", "/v1/survey?name=billing/a", "").body
		assert.Contains(t, own, `"names":["billing/a"]`)
		assert.NotContains(t, own, billing.session, "another could use it")
		assert.NotContains(t, own, lease)
		require.Len(t, v.Events, 1)
		assert.Equal(t, "mine", v.Events[0].Text)
		assert.Len(t, v.Lock.Events, 1)
		assert.Empty(t, names(payroll.survey("?filter=billing")))

		f.change(1, func(c *rights.Client) { c.Look = []string{"billing/*"} })
		assert.Equal(t, []string{"billing/a", "payroll/a"}, names(payroll.survey("")))
		v = payroll.survey("")
		assert.Zero(t, v.Sessions.Total)
		assert.Len(t, v.Events, 2, "names together are not shown by patterns")
		f.change(1, func(c *rights.Client) { c.Look = []string{"**"} })
		v = payroll.survey("")
		assert.Len(t, v.Events, 3)
		assert.Equal(t, 2, v.Sessions.Total)
		time.Sleep(10 * time.Second)
	})
}

// TestChangedRightsApplyAtOnce: a token is replaced, a right is revoked while its client waits,
// and a malformed file is noticed.
func TestChangedRightsApplyAtOnce(t *testing.T) {
	t.Parallel()
	withTwo(t, func(t *testing.T, f *file, servers *redlocktest.Servers, billing, payroll *client, lease string) {
		release := servers.Hold("payroll")
		waits := make(chan answer)
		go func() { waits <- payroll.ask("POST", "/v1/locks", `{"name":"payroll","wait_ms":60000}`) }()
		synctest.Wait()
		f.change(1, func(c *rights.Client) { c.Lock = []string{"payroll/**"} })
		release()
		a := <-waits
		assert.Equal(t, http.StatusForbidden, a.status)
		assert.Equal(t, "payroll", a.problem.Pattern)
		assert.True(t, free(t, servers, "payroll"))

		f.change(1, func(c *rights.Client) { c.Lock = []string{"billing/office"} })
		var leads leaderAnswer
		require.NoError(t, json.Unmarshal([]byte(payroll.ask("GET", "/leader", "").body), &leads))
		require.True(t, leads.Leader)
		go func() { waits <- payroll.ask("GET", "/leader?wait_ms=60000&seen="+text(leads.Token), "") }()
		synctest.Wait()
		f.change(1, func(c *rights.Client) { c.Lock = nil })
		assert.Equal(t, http.StatusForbidden, (<-waits).status)

		f.change(1, func(c *rights.Client) { *c = rights.Client{} })
		assert.Equal(t, http.StatusUnauthorized, payroll.ask("GET", "/healthz", "").status)
		f.wrong = errors.New("line 3")
		f.change(0, func(c *rights.Client) { c.Look = []string{"**"} })
		counts := billing.ask("GET", "/metrics", "").body
		for _, want := range []string{`_rights_wrong 1`, `_sessions 1`, `_leases 1`, `_grants_total{client="billing"} 1`, `_refused_total{client="payroll",kind="forbidden"} 2`, `_refused_total{client="",kind="forbidden"} 1`} {
			assert.Contains(t, counts, "\nredlock_serve"+want+"\n")
		}
		w := httptest.NewRecorder()
		billing.server.(*Server).Probes().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		assert.Contains(t, w.Body.String(), "\nredlock_serve_grants_total 1\n")
		assert.Contains(t, w.Body.String(), "\nredlock_serve_refused_total{kind=\"forbidden\"} 3\n")
		assert.NotContains(t, w.Body.String(), "client=", "anybody may look")
	})
}

// TestRenamedClientGetsNoLockOfItsOldSession: it could neither use the lock nor release it.
func TestRenamedClientGetsNoLockOfItsOldSession(t *testing.T) {
	f := twoClients(t)
	served(t, Config{Rights: f}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		payroll := as(t, s, "payroll")
		own := payroll.ask("POST", "/v1/sessions", "").session.Session
		for _, session := range []string{own, ""} {
			payroll.session = session
			release := servers.Hold("payroll")
			waits := make(chan answer)
			go func() { waits <- payroll.ask("POST", "/v1/locks", `{"name":"payroll","wait_ms":60000}`) }()
			synctest.Wait()
			f.change(1, func(c *rights.Client) { c.Label = "wages" })
			release()
			assert.Equal(t, api.KindSession, (<-waits).problem.Kind)
			assert.True(t, free(t, servers, "payroll"))
			f.change(1, func(c *rights.Client) { c.Label = "payroll" })
		}
		assert.Zero(t, s.table.usedBy("payroll").leases)
	})
}

// TestOperatorListsSessions: an operator lists the sessions of all clients, by IDs that open no
// session. Other clients may not.
func TestOperatorListsSessions(t *testing.T) {
	t.Parallel()
	withTwo(t, func(t *testing.T, f *file, servers *redlocktest.Servers, billing, payroll *client, lease string) {
		a := payroll.ask("GET", "/v1/sessions", "")
		assert.Equal(t, http.StatusForbidden, a.status)
		assert.Equal(t, `"payroll" may not list the sessions of all clients, or end one by its public id: its entry in --tokens has no sessions: true`, a.problem.Detail)
		assert.Equal(t, "sessions", a.problem.Right)
		f.change(1, func(c *rights.Client) { c.Operator = true })
		waiting := payroll.ask("POST", "/v1/sessions", `{"owner":"p"}`).session.Session
		servers.Hold("payroll")
		go (&client{t: t, server: payroll.server, session: waiting, headers: payroll.headers}).ask("POST", "/v1/locks", `{"name":"payroll","wait_ms":1000}`)
		time.Sleep(time.Millisecond)
		billing.take(`{"names":["billing/x","billing/y"],"fenced":true}`)

		list := func(query string) (all api.Sessions) {
			t.Helper()
			a := payroll.ask("GET", "/v1/sessions"+query, "")
			require.Equal(t, http.StatusOK, a.status, a.body)
			for _, secret := range []string{billing.session, waiting, lease} {
				assert.NotContains(t, a.body, secret)
			}
			require.NoError(t, json.Unmarshal([]byte(a.body), &all))
			return all
		}
		all := list("")
		require.Len(t, all.Sessions, 2)
		first := all.Sessions[0]
		assert.Equal(t, "billing", first.Client)
		assert.Equal(t, secret, first.Owner)
		assert.Equal(t, api.PublicID(billing.session), first.ID)
		require.Len(t, first.Leases, 2)
		assert.Equal(t, api.PublicID(lease), first.Leases[0].ID)
		assert.Equal(t, []string{"billing/a"}, first.Leases[0].Names)
		assert.Positive(t, first.Leases[1].Fences["billing/y"])
		assert.Equal(t, []string{"payroll"}, all.Sessions[1].Waits)
		assert.Len(t, list("?client=billing").Sessions, 1)
		assert.Equal(t, 1, list("?client=payroll").Total)
		assert.Zero(t, list("?client=").Total)
		assert.Len(t, list("?from=1").Sessions, 1)
		assert.Empty(t, list("?from=9").Sessions)
		assert.Equal(t, http.StatusBadRequest, payroll.ask("GET", "/v1/sessions?from=-1", "").status)
		for _, id := range []string{first.ID, first.Leases[0].ID} { // a public id opens nothing
			by := &client{t: t, server: payroll.server, session: id, headers: billing.headers}
			assert.Equal(t, http.StatusNotFound, by.ask("GET", "/v1/session", "").status)
			assert.Equal(t, http.StatusNotFound, by.ask("DELETE", "/v1/locks/"+id, "").status)
			assert.Equal(t, http.StatusForbidden, by.ask("DELETE", "/v1/session", "").status)
		}
		time.Sleep(time.Second)
	})
}

// TestServerWithoutTokensHasNoOperator: all clients have the same rights.
func TestServerWithoutTokensHasNoOperator(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		assert.Contains(t, c.ask("GET", "/v1/sessions", "").problem.Detail, "no client may list")
		c.session = api.PublicID(c.session)
		assert.Equal(t, http.StatusForbidden, c.ask("DELETE", "/v1/session", "").status)
	})
}

// TestOperatorEndsASession: its client gets no more promises, and its locks stay held until the
// last promise has ended. A session without a promise ends at once.
func TestOperatorEndsASession(t *testing.T) {
	f := twoClients(t)
	f.change(1, func(c *rights.Client) { c.Operator = true })
	served(t, Config{Rights: f}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		billing, operator := as(t, s, "billing"), as(t, s, "payroll")
		session := func() {
			billing.session = ""
			billing.session = billing.ask("POST", "/v1/sessions", `{"ttl_ms":60000}`).session.Session
		}
		end := func(of string) int {
			operator.session = of
			return operator.ask("DELETE", "/v1/session", "").status
		}
		session()
		taken := billing.take(`{"name":"billing/a","ttl_ms":10000}`)
		waits := make(chan answer)
		go func() { waits <- billing.ask("GET", "/v1/session?wait_ms=60000&seen=1", "") }()
		synctest.Wait()
		assert.Equal(t, http.StatusAccepted, end(api.PublicID(billing.session)))
		assert.Equal(t, api.KindSession, (<-waits).problem.Kind)
		assert.Equal(t, api.KindSession, billing.ask("GET", "/v1/session", "").problem.Kind)
		assert.Equal(t, api.KindSession, billing.ask("POST", "/v1/locks", `{"name":"billing/b"}`).problem.Kind)
		for _, route := range []string{"GET /v1/locks/%s", "POST /v1/locks/%s/extend", "DELETE /v1/locks/%s"} {
			method, path, _ := strings.Cut(fmt.Sprintf(route, taken.lease.Lease), " ")
			assert.Equal(t, api.KindLease, billing.ask(method, path, "").problem.Kind, route)
		}
		assert.Equal(t, http.StatusNotFound, end(api.PublicID(billing.session)), "it has ended")
		time.Sleep(time.Until(taken.end()) - time.Millisecond)
		assert.False(t, free(t, servers, "billing/a"), "its client may work")
		time.Sleep(time.Second)
		assert.True(t, free(t, servers, "billing/a"))
		assert.Zero(t, s.table.usedBy("billing").sessions)

		session()
		assert.Equal(t, http.StatusNoContent, end(api.PublicID(billing.session)), "it has no lock")
		session()
		billing.take(`{"name":"billing/a","ttl_ms":10000}`)
		end(api.PublicID(billing.session))
		released, left := endNow(s)
		assert.Equal(t, []int{0, 1}, []int{released, left}, "its client may work for longer than the server")
		assert.False(t, free(t, servers, "billing/a"))
	})
}

// TestEndedSessionLeavesTheLine: its waits for locks end if its client or an operator ends it.
func TestEndedSessionLeavesTheLine(t *testing.T) {
	f := twoClients(t)
	f.change(1, func(c *rights.Client) { c.Operator = true })
	served(t, Config{Rights: f}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		operator := as(t, s, "payroll")
		servers.Hold("billing/a")
		for _, by := range []string{"client", "operator", "operator of a holder"} {
			billing := as(t, s, "billing")
			billing.session = billing.ask("POST", "/v1/sessions", `{"ttl_ms":60000}`).session.Session
			if by == "operator of a holder" {
				billing.take(`{"name":"billing/b"}`)
			}
			waits := make(chan answer, 1)
			go func() { waits <- billing.ask("POST", "/v1/locks", `{"name":"billing/a","wait_ms":3600000}`) }()
			synctest.Wait()
			operator.session = api.PublicID(billing.session)
			ends := operator
			if by == "client" {
				ends = billing
			}
			began := time.Now()
			assert.Contains(t, []int{http.StatusNoContent, http.StatusAccepted}, ends.ask("DELETE", "/v1/session", "").status, by)
			a := <-waits
			assert.Equal(t, api.KindSession, a.problem.Kind, "%s: %s", by, a.body)
			assert.Less(t, time.Since(began), time.Second, by)
		}
	})
}

// TestEndedSessionGetsNoPromise: this includes a request that began before the end.
func TestEndedSessionGetsNoPromise(t *testing.T) {
	f := twoClients(t)
	f.change(1, func(c *rights.Client) { c.Operator = true })
	served(t, Config{Rights: f}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		billing, operator := as(t, s, "billing"), as(t, s, "payroll")
		billing.session = billing.ask("POST", "/v1/sessions", "").session.Session
		taken := billing.take(`{"name":"billing/a"}`)
		l, err := s.table.lease(taken.lease.Lease, "billing") // found by the other request
		require.NoError(t, err)
		operator.session = api.PublicID(billing.session)
		require.Equal(t, http.StatusAccepted, operator.ask("DELETE", "/v1/session", "").status)
		a, err := l.locked(&request{since: time.Now()})
		require.NoError(t, err)
		assert.False(t, a.Held)
		assert.Zero(t, a.ValidFor)
		l.session.leave()
	})
}

// TestSharesLimitEachClient: a client at its limit gets no more, and other clients do. Reducing a
// share ends nothing.
func TestSharesLimitEachClient(t *testing.T) {
	f := twoClients(t)
	served(t, Config{Rights: f}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		share := func(of map[string]int) { f.change(0, func(c *rights.Client) { c.Share = of }) }
		billing, payroll := as(t, s, "billing"), as(t, s, "payroll")
		refused := func(a answer, says string) {
			t.Helper()
			assert.Equal(t, http.StatusTooManyRequests, a.status, a.body)
			assert.Equal(t, api.KindLimit, a.problem.Kind)
			assert.Contains(t, a.problem.Detail, `"billing" has `+says)
		}
		ask := func(c *client, name string, wait int) answer {
			return c.ask("POST", "/v1/locks", fmt.Sprintf(`{"name":"%s/%s","wait_ms":%d}`, "billing", name, wait))
		}

		share(map[string]int{rights.Sessions: 2})
		first := billing.ask("POST", "/v1/sessions", "")
		require.Equal(t, http.StatusCreated, first.status)
		lone := ask(billing, "a", 0)
		require.Equal(t, http.StatusCreated, lone.status)
		refused(billing.ask("POST", "/v1/sessions", ""), "2 sessions, and its share in --tokens is 2: end one first")
		refused(ask(billing, "b", 0), "2 sessions")
		assert.Equal(t, http.StatusCreated, payroll.ask("POST", "/v1/sessions", "").status)
		billing.release(lone.lease.Lease) // ends its session
		lone = ask(billing, "a", 0)
		require.Equal(t, http.StatusCreated, lone.status, "the ended session has made room")

		share(map[string]int{rights.Leases: 2})
		billing.session = first.session.Session
		second := ask(billing, "b", 0)
		require.Equal(t, http.StatusCreated, second.status)
		refused(ask(billing, "c", 0), "2 leases, and its share in --tokens is 2: release one first")
		refused(billing.ask("POST", "/v1/locks", `{"name":"billing/c","every_ms":60000}`), "2 leases")
		share(map[string]int{rights.Leases: 1, rights.Sessions: 1})
		assert.True(t, billing.ask("GET", "/v1/locks/"+second.lease.Lease, "").lease.Held, "nothing is ended")
		assert.True(t, billing.ask("POST", "/v1/locks/"+second.lease.Lease+"/extend", "").lease.Held)
		billing.release(lone.lease.Lease)
		refused(ask(billing, "c", 0), "1 leases")
		billing.release(second.lease.Lease)
		third := ask(billing, "c", 0)
		require.Equal(t, http.StatusCreated, third.status)

		share(map[string]int{rights.Waits: 1})
		hold := servers.Hold("billing/d")
		waits := make(chan answer)
		go func() { waits <- ask(billing, "d", 60_000) }()
		synctest.Wait()
		refused(ask(billing, "e", 60_000), "1 waiting requests, and its share in --tokens is 1: ask again when one is answered")
		assert.Equal(t, http.StatusLocked, ask(billing, "d", 0).status, "it does not wait")
		share(map[string]int{rights.Leases: 1}) // reduced while it waits
		hold()
		refused(<-waits, "1 leases")
		assert.True(t, free(t, servers, "billing/d"), "a lock without room is released")
		share(map[string]int{rights.Waits: 1})
		assert.Equal(t, http.StatusCreated, ask(billing, "e", 60_000).status)
		require.Equal(t, http.StatusNoContent, billing.ask("DELETE", "/v1/session", "").status)
		for _, of := range s.table.used {
			assert.Zero(t, of.leases)
			assert.Zero(t, of.waits)
		}
		assert.Zero(t, s.table.usedBy("billing").sessions)
	})
}

// TestRefusalIsCountedAndLogged: it is counted and logged by the label, once a minute, and never
// with the token.
func TestRefusalIsCountedAndLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said []string
		_, s := start(t, Config{Rights: twoClients(t), Log: func(text string) { said = append(said, text) }})
		payroll := as(t, s, "payroll")
		for range 70 {
			payroll.ask("POST", "/v1/locks", `{"name":"billing/a"}`)
			as(t, s, "nobody").ask("POST", "/v1/locks", `{"name":"billing/a"}`)
			time.Sleep(time.Second)
		}
		require.Len(t, said, 4)
		assert.Equal(t, `refused: "payroll" may not lock "billing/a": its entry in --tokens has no pattern for it`, said[0])
		assert.Equal(t, `refused: a request without a known token or certificate, from 192.0.2.1:1234, with a token`, said[1])
		counts := payroll.ask("GET", "/metrics", "").body
		assert.Contains(t, counts, `redlock_serve_refused_total{client="payroll",kind="forbidden"} 70`)
		assert.NotContains(t, counts, `client=""`, "it may not look at all names")
		assert.Contains(t, counts, "redlock_serve_rights_wrong 0\n")
	})
}

// TestClientsAreIdentifiedByTokenOrCertificate.
func TestClientsAreIdentifiedByTokenOrCertificate(t *testing.T) {
	t.Parallel()
	_, s := start(t, Config{Rights: twoClients(t)})
	for name, c := range map[string]struct {
		authorization, subject, label string
	}{
		"a scheme in lower case":         {"bearer " + tokenOf("billing"), "", "billing"},
		"a token":                        {"Bearer " + tokenOf("billing"), "", "billing"},
		"a token, and a certificate":     {"Bearer " + tokenOf("billing"), "payroll", "billing"},
		"a certificate":                  {"", "payroll", "payroll"},
		"none":                           {"", "", ""},
		"an unknown certificate":         {"", "Payroll", ""},
		"a wrong token, and a good cert": {"Bearer " + tokenOf("nobody"), "payroll", ""},
		"a token without its type":       {tokenOf("billing"), "", ""},
		"a token of another type":        {"Basic " + tokenOf("billing"), "", ""},
		"two":                            {"Bearer " + tokenOf("billing") + " " + tokenOf("payroll"), "", ""},
		"its sum":                        {fmt.Sprintf("Bearer %x", sum(tokenOf("billing"))), "", ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		if r.TLS = nil; c.subject != "" {
			cert := certificateOf(c.subject)
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
		}
		of, err := s.clientOf(r)
		if c.label == "" && c.subject != "" && c.authorization == "" {
			assert.ErrorContains(t, err, "no client in --tokens has the certificate of CN="+c.subject+" DNS:a.example: ")
			assert.Equal(t, http.StatusUnauthorized, api.ProblemOf(err).Status)
		} else if c.label == "" {
			assert.Equal(t, errUnknown, err, name)
		} else if assert.NoError(t, err, name) {
			assert.Equal(t, c.label, of.Label, name)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificateOf("payroll")}}
	_, err := s.clientOf(r)
	assert.Equal(t, errUnknown, err, "a certificate that was not verified")
}

// certificateOf returns the parsed fields of a client's certificate.
func certificateOf(name string) *x509.Certificate {
	var subject pkix.Name
	subject.FillFromRDNSequence(new(pkix.Name{CommonName: name}.ToRDNSequence()))
	return &x509.Certificate{Subject: subject, DNSNames: []string{"a.example"}}
}
