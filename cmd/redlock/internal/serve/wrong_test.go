package serve

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// ofPrograms matches terms that only Go programmers know.
var ofPrograms = regexp.MustCompile(`\b[A-Z]\w*\(|\b(MaxHold|MaxTTL|NodeTimeout|Locker|Context|redlocktest)\b|option |redlock: |json: `)

// TestOtherMethods: the answer lists the methods of the path.
func TestOtherMethods(t *testing.T) {
	t.Parallel()
	_, s := start(t, Config{Page: &Page{}})
	there := map[string][]string{}
	for route := range s.routes() {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{lease}", "x", "{file...}", "x").Replace(path)
		there[path] = append(there[path], method)
		if method == http.MethodGet {
			there[path] = append(there[path], http.MethodHead)
		}
	}
	for path, methods := range there {
		slices.Sort(methods)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "FETCH"} {
			if slices.Contains(methods, method) {
				continue
			}
			a := (&client{t: t, server: s}).ask(method, path, "")
			assert.Equal(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, path)
			allowed := strings.Split(a.headers.Get("Allow"), ", ")
			slices.Sort(allowed)
			assert.Equal(t, methods, allowed, "%s %s", method, path)
		}
	}
	assert.Equal(t, http.StatusNotFound, (&client{t: t, server: s}).ask("PATCH", "/v1/lock", "").status)
}

// TestErrorsUseTheTermsOfHTTP: the terms of the library for Go programs are replaced.
func TestErrorsUseTheTermsOfHTTP(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		c.take(`{"name":"a","max_hold_ms":2000}`)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		lost := c.ask("GET", "/v1/session", "").session.Leases[0].Lost
		assert.Contains(t, lost, "held for max_hold_ms, 2s")
		assert.NotRegexp(t, ofPrograms, lost)
	})
	for _, err := range []error{
		&redlock.OptionError{Option: "TTL", Value: "1h", Reason: "is above the MaxTTL, 1m0s"},
		&redlock.OptionError{Option: "TTL", Value: "2h", Reason: "is above an hour: if that is acceptable, set MaxTTL for all clients"},
		errors.New("no quorum yet: servers have no vote (redlock reset gives it; tests use package redlocktest)"),
	} {
		assert.NotRegexp(t, ofPrograms, api.ProblemOf(err).Detail)
	}
}

// TestBrokenBodyIsTheFaultOfItsRequest: the answer "permanent" would make clients call an operator.
func TestBrokenBodyIsTheFaultOfItsRequest(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{",     // not a length
		"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n", // more than the length
		"Transfer-Encoding: chunked\r\n\r\n5\r\n{\r\n",  // the connection ends before the length
		"Content-Length: 300\r\n\r\n{}",
	} {
		synctest.Test(t, func(t *testing.T) {
			_, s := start(t, Config{})
			a := httptest.NewRecorder()
			text := "POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + body
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
			require.NoError(t, err)
			s.ServeHTTP(a, r.WithContext(t.Context()))
			assert.Equal(t, http.StatusBadRequest, a.Code, "%q: %s", body, a.Body)
			assert.Contains(t, a.Body.String(), "the body is incomplete, or its chunks are malformed", "%q", body)
		})
	}
}

// TestInvalidInputIsRefused: each row has an invalid request, and words of its answer.
func TestInvalidInputIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(redlocktest.Start(t).Locker(redlock.TTL(10*time.Second), redlock.NodeTimeout(500*time.Millisecond), redlock.MaxTTL(5*time.Minute)),
			Config{TTL: 10 * time.Second, Limits: Limits{Leases: 2}})
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
			{locks, `[]`, bad, `the body must be a JSON object, not a list`},
			{locks, `{"name":"c"`, bad, `the JSON object is incomplete`},
			{locks, `{"name":"c"} {}`, bad, `the body must be one JSON object: invalid character '{' after top-level value at byte 13`},
			{locks, `{name:"c"}`, bad, `the body must be one JSON object: invalid character`},
			{locks, `{"nam":"c"}`, bad, `unknown field "nam"`},
			{locks, `{"name":"c","name":"d"}`, bad, `"name" is duplicated, the second time at byte 12`},
			{locks, `{"name":"c","Name":"d"}`, bad, `unknown field "Name"`},
			{locks, "{\"name\":\"\xff\xfe\"}", bad, `"name": invalid UTF-8 at byte 9`},
			{locks, "{\"names\":[\"c\",\"d\xff\"]}", bad, `"names/1": invalid UTF-8 at byte 16`},
			{locks, `{"name":"\ud800"}`, bad, `"name": invalid`},
			{"GET /v1/locks?name=%ff%fe", ``, bad, `name="\xff\xfe" must be text in UTF-8`},
			{"GET /v1/locks?name=a&name=b", ``, bad, `"name" occurs 2 times in the query`},
			{"GET /v1/locks?name=a&permits=%zz", ``, bad, `invalid URL escape "%zz"`},
			{"GET /v1/locks/%ff", ``, bad, `the path "/v1/locks/\xff" must be text in UTF-8`},
			{locks, `{"name":1}`, bad, `"name" must be text, not number`},
			{locks, `{"name":"c","names":["d"]}`, bad, `exclude each other`},
			{locks, `{"names":[1]}`, bad, `"names" must be text, not number`},
			{locks, `{"names":["c",""]}`, bad, `must not be empty`},
			{locks, `{"name":"c","ttl_ms":"10s"}`, bad, `"ttl_ms" must be a whole number, not string`},
			{locks, `{"name":"c","ttl_ms":1.5}`, bad, `"ttl_ms" must be a whole number`},
			{locks, `{"name":"c","ttl_ms":9223372036854775807}`, bad, `"ttl_ms": `},
			{locks, `{"name":"c","wait_ms":-1}`, bad, `"wait_ms": -1 must be between 0 and 3600000`},
			{locks, `{"name":"c","ttl_ms":18446744083710}`, bad, `18446744083710 must be between`}, // 2^64 ns and ten seconds
			{locks, `{"name":"c","max_hold_ms":18446744083710}`, bad, `18446744083710 must be between`},
			{locks, `{"name":"c","every_ms":10}`, bad, `"every_ms": 10 must be between 1000 and`},
			{locks, `{"name":"c","every_ms":1000,"kind":"shared"}`, bad, `"every_ms" needs one "name"`},
			{locks, `{"name":"c","every_ms":86400001}`, bad, `"every_ms": 86400001 does not divide a day; the longest that does is 86400000`},
			{locks, `{"name":"c","every_ms":1620000}`, bad, `"every_ms": 1620000 does not divide a day; the nearest that do are 1440000 and 1800000`},
			{locks, `{"name":"c","apart_ms":10}`, bad, `"apart_ms": 10 must be between 1000 and 31536000000`},
			{locks, `{"name":"c","apart_ms":1000,"every_ms":1000}`, bad, `exclude each other`},
			{locks, `{"names":["c","d"],"apart_ms":1000}`, bad, `"apart_ms" needs one "name"`},
			{locks, `{"name":"nightly\r"}`, bad, `"name": "nightly\r" has a control character: it is another lock than "nightly"`},
			{locks, `{"names":["c"," d"]}`, bad, `"name": " d" begins or ends with a blank`},
			{locks, `{"name":"c","owner":"web\u200b"}`, bad, `"owner": "web\u200b" begins or ends with a blank`},
			{locks, `{"name":"c","every_day_in":"Europe/Bonn"}`, bad, `"every_day_in": "Europe/Bonn" must be a name of the time zone database`},
			{locks, `{"name":"c","every_day_in":"Local"}`, bad, `"every_day_in": "Local" must be a name`},
			{locks, `{"name":"c","every_day_in":"localtime"}`, bad, `"every_day_in": "localtime" must be a name`},
			{locks, `{"name":"c","every_day_in":"UTC","every_ms":1000}`, bad, `exclude each other`},
			{locks, `{"names":["c","d"],"every_day_in":"UTC"}`, bad, `"every_day_in" needs one "name"`},
			{locks, `{"name":"c","kind":"semaphore"}`, bad, `"kind": "semaphore" must be exclusive, shared or permits`},
			{locks, `{"name":"c","kind":"permits"}`, bad, `must be at least 2: it is the number of holders`},
			{locks, `{"name":"c","permits":-2}`, bad, `"permits"`},
			{locks, `{"name":"c","permits":1001}`, bad, `"permits": must be between`},
			{locks, `{"name":"c","permits":2,"weight":3}`, bad, `"weight": 3 must be at most "permits", which is 2`},
			{locks, `{"name":"c","permits":2,"fair":true}`, bad, `"fair" excludes "permits"`},
			{locks, `{"name":"c","permits":1000,"weight":129}`, bad, `"weight": must be between 1 and 128`},
			{locks, `{"name":"c","ttl_ms":10}`, bad, `"ttl_ms": 10 must be between 500 and`},
			{locks, `{"name":"c","ttl_ms":500}`, bad, `"ttl_ms": must be above the node timeout of the server (--node-timeout)`},
			{locks, `{"name":"c","ttl_ms":600000}`, bad, `"ttl_ms": is above --max-ttl of the server, 5m0s`},
			{locks, `{"name":"c","weight":-3}`, bad, `"weight"`},
			{locks, `{"name":"c","weight":2}`, bad, `"weight" needs "permits"`},
			{locks, `{"name":"c","kind":"shared","fenced":true}`, bad, `"fenced" excludes "kind" shared and "weight"`},
			{locks, `{"name":"c","kind":"shared","permits":3}`, bad, `exclude each other`},
			{locks, `{"names":["c","d"],"permits":3}`, bad, `"names" and "kind"`},
			{locks, `{"name":"c","owner":"` + strings.Repeat("x", 129) + `"}`, bad, `"owner": the label has 129 bytes`},
			{locks, `{"name":"` + strings.Repeat("x", 2000) + `"}`, bad, `name`},
			{locks, `{"name":"` + strings.Repeat("x", api.MaxBody) + `"}`, http.StatusRequestEntityTooLarge, `too large`},
			{locks, `{"name":"c"}`, http.StatusTooManyRequests, `too many leases in this session`},
			{"POST /v1/sessions", `{"ttl_ms":1}`, bad, `"ttl_ms": 1 must be between 1000 and 3600000`},
			{"POST /v1/sessions", `{"owner":"\u0000"}`, bad, `"owner": `},
			{"POST /v1/sessions", `null`, http.StatusCreated, ``},
			{"GET /v1/session?wait_ms=5", ``, bad, `wait_ms needs seen=VERSION`},
			{"GET /v1/session?seen=x&wait_ms=5", ``, bad, `seen=x`},
			{"GET /v1/session?seen=0&wait_ms=x", ``, bad, `wait_ms=x`},
			{"GET /v1/session?seen=0&wait_ms=-1", ``, bad, `wait_ms`},
			{"GET /v1/locks", ``, bad, `name=NAME is missing`},
			{"GET /v1/locks?name=a&permits=x", ``, bad, `permits=x`},
			{"GET /v1/locks?name=a&permits=1001", ``, bad, `1000`},
			{"GET /v1/locks/nope", ``, http.StatusNotFound, `no such lease`},
			{"GET /v2/locks", ``, http.StatusNotFound, `GET /v2/locks does not exist`},
			{"PUT /v1/locks", ``, http.StatusMethodNotAllowed, `/v1/locks does not allow PUT: use GET, HEAD, POST`},
		} {
			method, path, _ := strings.Cut(w.request, " ")
			a := c.ask(method, path, w.body)
			assert.Equal(t, w.status, a.status, "%s %.80s: %s", w.request, w.body, a.body)
			assert.Contains(t, a.problem.Detail, w.says, "%s %.80s", w.request, w.body)
			assert.NotContains(t, a.body, "json:", "%s %.80s", w.request, w.body)
			assert.NotRegexp(t, ofPrograms, a.problem.Detail, "%s %.80s", w.request, w.body)
		}
		other := open(t, s, "")
		other.session = "nope"
		assert.Equal(t, api.KindSession, other.ask("GET", "/v1/session", "").problem.Kind)
		assert.Equal(t, api.KindSession, other.ask("POST", "/v1/locks", `{"name":"c"}`).problem.Kind)
		other.session = ""
		assert.Equal(t, api.KindBad, other.ask("GET", "/v1/session", "").problem.Kind)
		other.headers = map[string]string{"Content-Type": "text/plain"}
		assert.Contains(t, other.ask("POST", "/v1/locks", `{"name":"c"}`).body, "Content-Type")
		for kind, status := range map[string]int{"Application/JSON; Charset=UTF-8": http.StatusCreated, "application/jsonx": http.StatusBadRequest} {
			other.headers = map[string]string{"Content-Type": kind}
			assert.Equal(t, status, other.ask("POST", "/v1/locks", `{"name":"c`+kind+`"}`).status, kind)
		}
		c.headers = map[string]string{"Accept": "text/event-stream"}
		assert.Contains(t, c.ask("GET", "/v1/session?bound=yes", "").problem.Detail, "bound=yes: must be true or false")
		c.headers = map[string]string{"Idempotency-Key": "\xff"}
		assert.Contains(t, c.ask("POST", "/v1/locks", `{"name":"a"}`).problem.Detail, "the header Idempotency-Key must be text in UTF-8")
		c.headers = map[string]string{"Idempotency-Key": strings.Repeat("x", api.MaxKey+1)}
		assert.Contains(t, c.ask("POST", "/v1/locks", `{"name":"a"}`).problem.Detail, "Idempotency-Key has 256 bytes")
	})
}

func TestLimits(t *testing.T) {
	served(t, Config{Limits: Limits{Sessions: 2, Total: 2}}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c, other := open(t, s, ""), open(t, s, "")
		assert.Equal(t, api.KindLimit, c.ask("POST", "/v1/sessions", "").problem.Kind)
		c.take(`{"name":"a"}`)
		a := other.take(`{"name":"b"}`)
		assert.Equal(t, api.KindLimit, c.ask("POST", "/v1/locks", `{"name":"c"}`).problem.Kind)
		assert.True(t, free(t, servers, "c"))
		other.release(a.lease.Lease)
		c.take(`{"name":"c"}`)
		require.Equal(t, http.StatusNoContent, other.ask("DELETE", "/v1/session", "").status)
		open(t, s, "")
	})
}

func TestAccess(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		config       Config
		host, origin string
		isTLS        bool
		refused      bool
	}{
		"a program":                          {config: Config{IsLoopback: true}, host: "127.0.0.1:8080"},
		"by name":                            {config: Config{IsLoopback: true}, host: "LocalHost:8080"},
		"by IPv6":                            {config: Config{IsLoopback: true}, host: "[::1]:8080"},
		"by IPv6 without a port":             {config: Config{IsLoopback: true}, host: "[::1]"},
		"an attacker's name":                 {config: Config{IsLoopback: true}, host: "evil.example:8080", refused: true},
		"an allowed name":                    {config: Config{IsLoopback: true, Hosts: []string{"host.docker.internal"}}, host: "Host.docker.internal:8080"},
		"an allowed name, and a page":        {config: Config{IsLoopback: true, Hosts: []string{"host.docker.internal"}}, host: "host.docker.internal:8080", origin: "http://evil.example", refused: true},
		"a part of an allowed name":          {config: Config{IsLoopback: true, Hosts: []string{"host.docker.internal"}}, host: "docker.internal", refused: true},
		"allowed, over a socket with a page": {config: Config{Page: &Page{}, Hosts: []string{"a.example"}}, host: "a.example"},
		"without a name, as HTTP/1.0":        {config: Config{IsLoopback: true}, host: ""},
		"a page, where there is none":        {config: Config{IsLoopback: true}, host: "localhost:8080", origin: "http://localhost:8080", refused: true},
		"a page over a socket":               {host: "evil.example", origin: "http://evil.example", refused: true},
		"a page over a network":              {host: "lock.example", origin: "https://evil.example", isTLS: true, refused: true},
		"a page of its own":                  {config: Config{IsLoopback: true, Page: &Page{}}, host: "localhost:8080", origin: "http://localhost:8080"},
		"a page of another":                  {config: Config{IsLoopback: true}, host: "localhost:8080", origin: "http://localhost:3000", refused: true},
		"a page of its own, over TLS":        {config: Config{IsLoopback: true, Page: &Page{}}, host: "localhost:8080", origin: "https://localhost:8080", isTLS: true},
		"a page of another, behind a port":   {config: Config{IsLoopback: true}, host: "localhost:8080", origin: "http://localhost:8080", isTLS: true, refused: true},
		"a page from nowhere":                {config: Config{IsLoopback: true}, host: "localhost:8080", origin: "null", refused: true},
		"any name over a socket":             {host: "redlock"},
		"a name over a socket with a page":   {config: Config{Page: &Page{}}, host: "evil.example", refused: true},
		"no dot, with a page":                {config: Config{Page: &Page{}}, host: "redlock"},
		"forwarded, with a page":             {config: Config{Page: &Page{}}, host: "127.0.0.1:8080", origin: "http://127.0.0.1:8080"},
		"another page over it":               {config: Config{Page: &Page{}}, host: "localhost:8080", origin: "http://localhost:3000", refused: true},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://x/", nil)
		require.NoError(t, err)
		if r.Host = x.host; x.isTLS {
			r.TLS = &tls.ConnectionState{}
		}
		if x.origin != "" {
			r.Header.Set("Origin", x.origin)
		}
		assert.Equal(t, x.refused, x.config.refuses(r) != nil, name)
	}
}
