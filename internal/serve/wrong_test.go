package serve

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWrongInput has what clients send that is wrong, and words of the answer.
func TestWrongInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s := start(t, Config{Limits: Limits{Leases: 2}})
		c := open(t, s, "")
		c.take(`{"name":"a"}`)
		c.take(`{"name":"b"}`)
		const locks, bad = "POST /v1/locks", http.StatusBadRequest
		for _, w := range []struct {
			request, body string
			status        int
			says          string
		}{
			{locks, ``, bad, `"name" is missing`},
			{locks, `{}`, bad, `"name" is missing`},
			{locks, `[]`, bad, `a JSON object is wanted, not array`},
			{locks, `"a"`, bad, `a JSON object is wanted, not string`},
			{locks, `{"name":"c"`, bad, `not complete`},
			{locks, `{"name":"c"} {}`, bad, `there is more behind`},
			{locks, `{name:"c"}`, bad, `the body: invalid character`},
			{locks, `{"nam":"c"}`, bad, `unknown field "nam"`},
			{locks, `{"name":1}`, bad, `"name": text is wanted, not number`},
			{locks, `{"name":"c","names":["d"]}`, bad, `exclude each other`},
			{locks, `{"names":"c"}`, bad, `a list of text is wanted`},
			{locks, `{"names":[1]}`, bad, `"names": text is wanted, not number`},
			{locks, `{"names":["c",""]}`, bad, `must not be empty`},
			{locks, `{"name":"c","ttl_ms":"10s"}`, bad, `"ttl_ms": a whole number is wanted, not string`},
			{locks, `{"name":"c","ttl_ms":1.5}`, bad, `"ttl_ms": a whole number is wanted`},
			{locks, `{"name":"c","ttl_ms":1e30}`, bad, `"ttl_ms": a whole number is wanted`},
			{locks, `{"name":"c","ttl_ms":-1}`, bad, `"ttl_ms": `},
			{locks, `{"name":"c","ttl_ms":9223372036854775807}`, bad, `"ttl_ms": `},
			{locks, `{"name":"c","wait_ms":-1}`, bad, `"wait_ms": -1 must be between 0 and 3600000`},
			{locks, `{"name":"c","max_hold_ms":-1}`, bad, `"max_hold_ms": `},
			{locks, `{"name":"c","max_hold_ms":9223372036854775807}`, bad, `"max_hold_ms": `},
			{locks, `{"name":"c","every_ms":10}`, bad, `"every_ms": 10 must be between 1000 and`},
			{locks, `{"name":"c","every_ms":-10}`, bad, `"every_ms": `},
			{locks, `{"name":"c","every_ms":1000,"kind":"shared"}`, bad, `"every_ms" is for one name`},
			{locks, `{"name":"c","kind":"semaphore"}`, bad, `"kind": "semaphore" must be exclusive, shared or permits`},
			{locks, `{"name":"c","kind":"permits"}`, bad, `"permits": how many`},
			{locks, `{"name":"c","permits":-2}`, bad, `"permits"`},
			{locks, `{"name":"c","permits":1001}`, bad, `"permits": must be between`},
			{locks, `{"name":"c","permits":2,"weight":3}`, bad, `"weight": `},
			{locks, `{"name":"c","weight":-3}`, bad, `"weight"`},
			{locks, `{"name":"c","weight":2}`, bad, `"weight" is for "permits"`},
			{locks, `{"name":"c","kind":"shared","fenced":true}`, bad, `"fenced" is for one holder`},
			{locks, `{"name":"c","kind":"shared","permits":3}`, bad, `exclude each other`},
			{locks, `{"names":["c","d"],"permits":3}`, bad, `"names" are for`},
			{locks, `{"name":"c","owner":"a\nb"}`, bad, `"owner": `},
			{locks, `{"name":"c","owner":"` + strings.Repeat("x", 129) + `"}`, bad, `"owner": the label has 129 bytes`},
			{locks, `{"name":"` + strings.Repeat("x", 2000) + `"}`, bad, `name`},
			{locks, `{"name":"` + strings.Repeat("x", maxBody) + `"}`, http.StatusRequestEntityTooLarge, `too large`},
			{locks, `{"name":"c"}`, http.StatusTooManyRequests, `as many leases as are allowed`},
			{"POST /v1/sessions", `{"ttl_ms":1}`, bad, `"ttl_ms": 1 must be between 1000 and 3600000`},
			{"POST /v1/sessions", `{"ttl_ms":-9223372036854775808}`, bad, `"ttl_ms"`},
			{"POST /v1/sessions", `{"owner":"\u0000"}`, bad, `"owner": `},
			{"POST /v1/sessions", `null`, http.StatusCreated, ``},
			{"GET /v1/session?wait_ms=5", ``, bad, `goes with seen`},
			{"GET /v1/session?seen=x&wait_ms=5", ``, bad, `seen=x`},
			{"GET /v1/session?seen=0&wait_ms=x", ``, bad, `wait_ms=x`},
			{"GET /v1/session?seen=0&wait_ms=-1", ``, bad, `wait_ms`},
			{"GET /v1/locks", ``, bad, `name=NAME is missing`},
			{"GET /v1/locks?name=a&permits=x", ``, bad, `permits=x`},
			{"GET /v1/locks?name=a&permits=1001", ``, bad, `1000`},
			{"GET /v1/locks/nope", ``, http.StatusNotFound, `no such lease`},
			{"DELETE /v1/locks/nope", ``, http.StatusNotFound, `no such lease`},
			{"POST /v1/locks/nope/extend", ``, http.StatusNotFound, `no such lease`},
			{"GET /v2/locks", ``, http.StatusNotFound, `there is no GET /v2/locks`},
			{"PUT /v1/locks", ``, http.StatusNotFound, `there is no PUT /v1/locks`},
		} {
			method, path, _ := strings.Cut(w.request, " ")
			a := c.ask(method, path, w.body)
			assert.Equal(t, w.status, a.status, "%s %.80s: %s", w.request, w.body, a.body)
			assert.Contains(t, a.problem.Detail, w.says, "%s %.80s", w.request, w.body)
			assert.NotContains(t, a.body, "json:", "%s %.80s", w.request, w.body)
			assert.NotContains(t, a.body, "option ", "%s %.80s", w.request, w.body)
		}
		other := open(t, s, "")
		other.session = "nope"
		assert.Equal(t, kindSession, other.ask("GET", "/v1/session", "").problem.Kind)
		assert.Equal(t, kindSession, other.ask("POST", "/v1/locks", `{"name":"c"}`).problem.Kind)
		other.session = ""
		assert.Equal(t, kindBad, other.ask("GET", "/v1/session", "").problem.Kind)
		other.headers = map[string]string{"Content-Type": "text/plain"}
		assert.Contains(t, other.ask("POST", "/v1/locks", `{"name":"c"}`).body, "Content-Type")
	})
}

func TestLimitOfSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s := start(t, Config{Limits: Limits{Sessions: 2}})
		c := open(t, s, "")
		open(t, s, "")
		assert.Equal(t, kindLimit, c.ask("POST", "/v1/sessions", "").problem.Kind)
		require.Equal(t, http.StatusNoContent, c.ask("DELETE", "/v1/session", "").status)
		open(t, s, "")
	})
}

func TestLimitOfAllLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, s := start(t, Config{Limits: Limits{Total: 2}})
		c := open(t, s, "")
		c.take(`{"name":"a"}`)
		a := open(t, s, "").take(`{"name":"b"}`)
		assert.Equal(t, kindLimit, c.ask("POST", "/v1/locks", `{"name":"c"}`).problem.Kind)
		assert.True(t, free(t, servers, "c"))
		require.Equal(t, http.StatusNoContent, c.ask("DELETE", "/v1/locks/"+a.lease.Lease, "").status)
		c.take(`{"name":"c"}`)
	})
}

func TestAccess(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		config              Config
		host, origin, token string
		refused             bool
	}{
		"a program":                        {config: Config{IsLoopback: true}, host: "127.0.0.1:8080"},
		"by name":                          {config: Config{IsLoopback: true}, host: "LocalHost:8080"},
		"by IPv6":                          {config: Config{IsLoopback: true}, host: "[::1]:8080"},
		"by IPv6 without a port":           {config: Config{IsLoopback: true}, host: "[::1]"},
		"an attacker's name":               {config: Config{IsLoopback: true}, host: "evil.example:8080", refused: true},
		"without a name":                   {config: Config{IsLoopback: true}, host: "", refused: true},
		"a page of its own":                {config: Config{IsLoopback: true}, host: "localhost:8080", origin: "http://localhost:8080"},
		"a page of another":                {config: Config{IsLoopback: true}, host: "localhost:8080", origin: "http://localhost:3000", refused: true},
		"a page from nowhere":              {config: Config{IsLoopback: true}, host: "localhost:8080", origin: "null", refused: true},
		"any name over a socket":           {host: "redlock"},
		"a name over a socket with a page": {config: Config{Page: &Page{}}, host: "evil.example", refused: true},
		"no dot, with a page":              {config: Config{Page: &Page{}}, host: "redlock"},
		"forwarded, with a page":           {config: Config{Page: &Page{}}, host: "127.0.0.1:8080", origin: "http://127.0.0.1:8080"},
		"another page over it":             {config: Config{Page: &Page{}}, host: "localhost:8080", origin: "http://localhost:3000", refused: true},
		"with the token":                   {config: Config{Token: "0123456789abcdef"}, token: "Bearer 0123456789abcdef"},
		"with another":                     {config: Config{Token: "0123456789abcdef"}, token: "Bearer 0123456789abcdeF", refused: true},
		"with no token":                    {config: Config{Token: "0123456789abcdef"}, refused: true},
		"with the token, no type":          {config: Config{Token: "0123456789abcdef"}, token: "0123456789abcdef", refused: true},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://x/", nil)
		require.NoError(t, err)
		r.Host = x.host
		if x.origin != "" {
			r.Header.Set("Origin", x.origin)
		}
		if x.token != "" {
			r.Header.Set("Authorization", x.token)
		}
		assert.Equal(t, x.refused, x.config.refuses(r) != nil, name)
	}
}

// FuzzRequests: whatever a client sends, it gets an answer that says what is wrong, and takes at most
// what it asks for.
func FuzzRequests(f *testing.F) {
	f.Add("/v1/locks", `{"name":"a","permits":3,"weight":2,"ttl_ms":1000,"owner":"x"}`)
	f.Add("/v1/locks", `{"names":["a","b"],"fenced":true,"wait_ms":1}`)
	f.Add("/v1/sessions", `{"ttl_ms":1000}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		if path != "/v1/locks" && path != "/v1/sessions" {
			path = "/v1/locks"
		}
		synctest.Test(t, func(t *testing.T) {
			_, s := start(t, Config{})
			a := (&client{t: t, server: s}).ask("POST", path, body)
			switch a.status {
			case http.StatusCreated, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			default:
				t.Errorf("%s %q: %d %s", path, body, a.status, a.body)
			}
			assert.LessOrEqual(t, len(s.table.sessions), 1)
			assert.LessOrEqual(t, len(s.table.leases), 1)
			if a.status != http.StatusCreated {
				assert.NotEmpty(t, a.problem.Detail)
				assert.Empty(t, s.table.leases)
			}
		})
	})
}
