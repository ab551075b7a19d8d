package httplock_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

const (
	badRequest  = `{"type":"about:blank","title":"Bad Request","status":400,"detail":"The request does not name anything that can be locked."}` + "\n"
	locked      = `{"type":"about:blank","title":"Locked","status":423,"detail":"Another request is working on this. Try again later."}` + "\n"
	broken      = `{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"This cannot be worked on until an operator has repaired the service."}` + "\n"
	unavailable = `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"This cannot be worked on at the moment. Try again later."}` + "\n"
)

// isProblem compares the whole answer, so that it cannot contain a name, a value or an address.
func isProblem(t *testing.T, w *httptest.ResponseRecorder, status int, body, retryAfter string) {
	t.Helper()
	assert.Equal(t, status, w.Code)
	assert.Equal(t, body, w.Body.String())
	want := http.Header{"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}}
	if retryAfter != "" {
		want.Set("Retry-After", retryAfter)
	}
	assert.Equal(t, want, w.Header())
}

// TestAnswerNamesTheObstacle: the obstacle is the quarantine of fresh servers (with the remaining
// time), a holder (without a body for HEAD), or a closed Locker.
func TestAnswerNamesTheObstacle(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		h := wrap(t, open(t, w, redlock.MemoryGuard(true)), mustNotRun(t))
		isProblem(t, serve(h, request(t, "x")), 503, unavailable, "11") // the TTL and its drift
		time.Sleep(4 * time.Second)
		isProblem(t, serve(h, request(t, "x")), 503, unavailable, "7")

		l, r := open(t, w), request(t, "held")
		take(t, open(t, w), "held")
		r.Method = http.MethodHead
		isProblem(t, serve(wrap(t, l, mustNotRun(t)), r), 423, "", "10")
		h = wrap(t, l, mustNotRun(t))
		require.NoError(t, l.Close())
		isProblem(t, serve(h, request(t, "x")), 503, unavailable, "5")
	})
}

// TestInvalidNameGets400: the longest valid name gets another answer.
func TestInvalidNameGets400(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		h := wrap(t, open(t, w), func(http.ResponseWriter, *http.Request) {}, httplock.Wait(time.Second))
		for _, name := range []string{"", strings.Repeat("n", 2000), strings.Repeat("n", 1025), "redlock:epoch"} {
			isProblem(t, serve(h, request(t, name)), 400, badRequest, "")
		}
		assert.Equal(t, 200, serve(h, request(t, strings.Repeat("n", 1024))).Code)
	})
}

// TestKeyErrorGets400: the KeyError may wrap any error, and no node is asked.
func TestKeyErrorGets400(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		asked := 0
		w.Watch(func(sim.Step) { asked++ })
		for _, cause := range []error{errors.New("secret"), redlock.ErrHeld} {
			serialise, err := httplock.New(open(t, w), func(*http.Request) (string, error) { return "x", cause })
			require.NoError(t, err)
			isProblem(t, serve(serialise(mustNotRun(t)), request(t, "x")), 400, badRequest, "")
			assert.EqualError(t, &httplock.KeyError{Err: cause}, "httplock: no lock for this request: "+cause.Error(), "for logs")
		}
		assert.Zero(t, asked)
	})
}

// TestRetryAfterIsInWholeSecondsRoundedUp.
func TestRetryAfterIsInWholeSecondsRoundedUp(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]string{
		-1: "", 0: "", 1: "1", time.Second - 1: "1", time.Second: "1", time.Second + 1: "2", time.Hour: "3600", 1<<63 - 1: "9223372037",
	} {
		w := serve(&httplock.Problem{Status: 423, RetryAfter: left}, request(t, "x"))
		assert.Equal(t, want, w.Header().Get("Retry-After"), left)
	}
}

// TestRetryAfterIsTheKnownRemainingTime: the header is absent for a lock of unknown TTL, and 5
// seconds for an outage of unknown length.
func TestRetryAfterIsTheKnownRemainingTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ left, held, outage time.Duration }{
		{protocol.NoTTL, 0, 5 * time.Second},
		{0, 0, 5 * time.Second},
		{time.Minute, time.Minute, time.Minute},
	} {
		assert.Equal(t, c.held, httplock.ProblemOf(&redlock.QuorumError{Err: redlock.ErrHeld, Remaining: c.left}).RetryAfter)
		assert.Equal(t, c.outage, httplock.ProblemOf(&redlock.QuorumError{Err: redlock.ErrNoQuorum, Remaining: c.left}).RetryAfter)
	}
}

// TestAnswerGetsTheError: Answer may write any answer, or change a part of the default answer.
func TestAnswerGetsTheError(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		take(t, open(t, w), "held")
		l := open(t, w)
		var got error
		h := wrap(t, l, mustNotRun(t), httplock.Answer(func(w http.ResponseWriter, r *http.Request, err error) {
			got = err
			p := httplock.ProblemOf(err)
			p.Detail = fmt.Sprint("no ", r.Header.Get(header))
			p.ServeHTTP(w, r)
		}))
		for name, match := range map[string]func(error) bool{
			"held": func(err error) bool { return errors.Is(err, redlock.ErrHeld) },
			"":     func(err error) bool { return errors.As(err, new(*httplock.KeyError)) },
		} {
			answer := serve(h, request(t, name))
			assert.Contains(t, answer.Body.String(), `"detail":"no `+name+`"`)
			assert.True(t, match(got), got)
		}
	})
}
