package httplock

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// outageRetry is what a client is told to wait where it is not known how long it
// takes: without, some try again at once and others never.
const outageRetry = 5 * time.Second

// A Problem is an answer in the form of RFC 9457: problem details. It is a
// handler that writes itself.
type Problem struct {
	Type   string `json:"type"`   // "about:blank": nothing to know beyond the status
	Title  string `json:"title"`  // the status in words
	Status int    `json:"status"` // of HTTP
	Detail string `json:"detail"` // for people

	// RetryAfter is sent as whole seconds, rounded up; zero or less: not at all.
	RetryAfter time.Duration `json:"-"`
}

// ProblemOf returns the default answer to a request that did not get its lock, for hooks that
// change a part of it. The package comment has the statuses. RetryAfter is what is left of the lock
// or of the quarantine. If that is not known it is zero for 423 and 5 s for 503; for 500 it is
// zero. The error's text is not in it.
func ProblemOf(err error) *Problem {
	var key *KeyError
	var vote *redlock.QuorumError
	var left time.Duration
	if errors.As(err, &vote) {
		left = max(0, vote.Remaining) // NoTTL is negative
		err = vote.Kind()
	}
	switch {
	case errors.As(err, &key):
		return newProblem(http.StatusBadRequest, "The request does not name anything that can be locked.", 0)
	case errors.Is(err, redlock.ErrHeld):
		return newProblem(http.StatusLocked, "Another request is working on this. Try again later.", left)
	case vote != nil && vote.Permanent():
		return newProblem(http.StatusInternalServerError, "This cannot be worked on until an operator has repaired the service.", 0)
	}
	if left == 0 {
		left = outageRetry
	}
	return newProblem(http.StatusServiceUnavailable, "This cannot be worked on at the moment. Try again later.", left)
}

func newProblem(status int, detail string, retry time.Duration) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, RetryAfter: retry}
}

// ServeHTTP answers with the problem, without a body if the request's method is HEAD.
func (p *Problem) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		seconds := (p.RetryAfter-1)/time.Second + 1
		h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		json.NewEncoder(w).Encode(p) // an error is the client's, who has left
	}
}

// answer is the default of Answer.
func answer(w http.ResponseWriter, r *http.Request, err error) { ProblemOf(err).ServeHTTP(w, r) }
