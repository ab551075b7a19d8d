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
	"github.com/redquorum/redquorum/redlocktest"
)

// twoClients is a file with two of them, whose tokens are their labels, repeated.
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

// secret is a text that nothing but billing is told.
const secret = "billing-secret"

// withTwo runs a test of a server with a page and an office, of which billing holds a lock. The server is
// payroll's, too.
func withTwo(t *testing.T, test func(t *testing.T, f *file, servers *redlocktest.Servers, billing, payroll *client, lease string)) {
	synctest.Test(t, func(t *testing.T) {
		f := twoClients(t)
		page := &Page{Look: showing(held("billing/a", secret), held("payroll/a", "1"))}
		page.events.add(time.Now(), Event{Lock: "billing/a", Text: secret}, Event{Lock: "payroll/a, billing/a", Text: secret}, Event{Lock: "payroll/a", Text: "mine"})
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

// TestNoRouteIsForgotten: each asks for a token, and does nothing for a client that has another's session and lease,
// and not the right.
func TestNoRouteIsForgotten(t *testing.T) {
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

// TestTheLeaseOfAnother cannot be had by any way of asking.
func TestTheLeaseOfAnother(t *testing.T) {
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

// TestThePageShowsWhatAClientMayLookAt.
func TestThePageShowsWhatAClientMayLookAt(t *testing.T) {
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

// TestRightsAreThoseOfTheMoment: a token is replaced, a right is taken away while its client waits, and a file that
// is wrong is seen.
func TestRightsAreThoseOfTheMoment(t *testing.T) {
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
		for _, want := range []string{`_rights_wrong 1`, `_sessions 1`, `_leases 1`, `_grants_total{client="billing"} 1`, `_refused_total{client="payroll"} 2`, `_refused_total{client=""} 1`} {
			assert.Contains(t, counts, "\nredlock_serve"+want+"\n")
		}
		w := httptest.NewRecorder()
		billing.server.(*Server).Probes().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		assert.Contains(t, w.Body.String(), "\nredlock_serve_grants_total 1\n")
		assert.Contains(t, w.Body.String(), "\nredlock_serve_refused_total 3\n")
		assert.NotContains(t, w.Body.String(), "client=", "anybody may look")
	})
}

// TestARefusalIsCountedAndLogged by the label, once a minute, and never with the token.
func TestARefusalIsCountedAndLogged(t *testing.T) {
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
		assert.Contains(t, counts, `redlock_serve_refused_total{client="payroll"} 70`)
		assert.NotContains(t, counts, `client=""`, "it may not look at all names")
		assert.Contains(t, counts, "redlock_serve_rights_wrong 0\n")
	})
}

// TestClientsAreKnownByTokenOrCertificate.
func TestClientsAreKnownByTokenOrCertificate(t *testing.T) {
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
			assert.Equal(t, http.StatusUnauthorized, problemOf(err).Status)
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

// certificateOf returns what is known of a certificate of a client, which was read.
func certificateOf(name string) *x509.Certificate {
	var subject pkix.Name
	subject.FillFromRDNSequence(new(pkix.Name{CommonName: name}.ToRDNSequence()))
	return &x509.Certificate{Subject: subject, DNSNames: []string{"a.example"}}
}
