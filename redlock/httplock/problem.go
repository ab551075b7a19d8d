package httplock

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// outageRetry is the Retry-After of an outage of unknown length. Without it some clients would
// retry at once, and others never.
const outageRetry = 5 * time.Second

// A Problem is an answer with problem details (RFC 9457), and a handler that writes the answer.
type Problem struct {
	Type   string `json:"type"`   // always "about:blank", because the status is sufficient
	Title  string `json:"title"`  // text of the status
	Status int    `json:"status"` // HTTP status
	Detail string `json:"detail"` // text for people

	// sent in whole seconds, rounded up; not sent if zero or negative
	RetryAfter time.Duration `json:"-"`
}

// ProblemOf returns the default answer to a request that did not get its lock, for hooks that
// change a part of it. The package comment lists the statuses. RetryAfter is the remaining time of
// the lock or of the quarantine. If that is unknown, it is zero for 423 and 5 s for 503. For 500 it
// is zero. The answer does not contain the text of the error.
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

// ServeHTTP writes the problem, without a body if the request's method is HEAD.
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
		json.NewEncoder(w).Encode(p) // an error means that the client has disconnected
	}
}

// answer is the default of Answer.
func answer(w http.ResponseWriter, r *http.Request, err error) { ProblemOf(err).ServeHTTP(w, r) }
