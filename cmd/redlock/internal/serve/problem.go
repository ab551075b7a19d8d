package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// A problem is an answer that is not what was wanted, in the form of RFC 9457. Kind is for programs.
// It is an error, too.
type problem struct {
	Type       string   `json:"type"` // "about:blank": kind says it
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Kind       string   `json:"kind"`
	Holder     *holder  `json:"holder,omitempty"`         // of kind held, if it says who it is
	InTheWay   []string `json:"in_the_way,omitempty"`     // of several names
	RetryAfter int64    `json:"retry_after_ms,omitempty"` // a hint
	Right      string   `json:"right,omitempty"`          // of kind forbidden: what the client would need,
	Pattern    string   `json:"pattern,omitempty"`        // for this pattern
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// The kinds of problems.
const (
	kindBad       = "bad_request"
	kindForbidden = "forbidden"
	kindSession   = "no_session"
	kindLease     = "no_lease"
	kindConflict  = "other_request"
	kindHeld      = "held"
	kindDone      = "done" // the tick has been run, or the last start was too recent
	kindLate      = "late" // whether the tick has been run is not known any more
	kindLost      = "lost"
	kindNoQuorum  = "no_quorum"
	kindPermanent = "permanent" // the servers will not grant it as they are
	kindLimit     = "limit"
	kindEnding    = "ending"
)

var (
	errEnding = newProblem(http.StatusServiceUnavailable, kindEnding, "the server is shutting down: ask again when it is back")
	errLate   = newProblem(http.StatusConflict, kindLate, "the lock was granted too late to know whether the tick of this request has been run: send a new request, for the current tick")
	errDone   = newProblem(http.StatusConflict, kindDone, "the tick has been run, is being run, or was marked by a request that got no lock, and will not be run")
	errSoon   = newProblem(http.StatusConflict, kindDone, "the last start was less than apart_ms ago")
	// errLeft is the answer to a client that has left. One that has only shut down its writing side reads it.
	errLeft      = bad("the connection was closed before the answer: keep it open in both directions until the answer has arrived")
	errNoSession = newProblem(http.StatusNotFound, kindSession, "no such session: it never existed, was ended, or sent no request for its TTL")
	errNoLease   = newProblem(http.StatusNotFound, kindLease, "no such lease: it never existed, was released, or its session has ended")
	errOtherWish = newProblem(http.StatusUnprocessableEntity, kindConflict, "the Idempotency-Key was used for another request: use a new key for each lock")
	errOver      = newProblem(http.StatusGone, kindLease, "the lock of this Idempotency-Key was released: use a new key for each lock")
	errUnderWay  = newProblem(http.StatusLocked, kindHeld, "an earlier request with this Idempotency-Key is still waiting for the lock")
	errResuming  = &problem{Type: "about:blank", Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable, Kind: kindNoQuorum,
		Detail: "the server was restarted and is taking over the locks of its clients, and too few Redis servers have answered yet: ask again", RetryAfter: 1000}
	errNoOffice = newProblem(http.StatusNotFound, kindBad, "this server is not a candidate: start redlock serve with --office")
	errTermOver = newProblem(http.StatusGone, kindLost, "this candidate does not lead with that token")
)

const (
	bodyWithin   = 10 * time.Second
	answerWithin = 10 * time.Second // in which a client reads some of it
)

// newProblem returns a problem without what only some kinds have.
func newProblem(status int, kind, detail string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Kind: kind}
}

// bad returns what is wrong with a request.
func bad(format string, args ...any) error {
	return newProblem(http.StatusBadRequest, kindBad, fmt.Sprintf(format, args...))
}

// badBody returns the answer for a body that could not be read, which is the client's fault, or the network's.
func badBody(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return newProblem(http.StatusRequestEntityTooLarge, kindBad, fmt.Sprintf("the body is too large: at most %d bytes are allowed", maxBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(http.StatusRequestTimeout, kindBad, "the body did not arrive within "+bodyWithin.String())
	}
	return bad("the body is incomplete, or its chunks are malformed: %v", err)
}

// tooMany says that there is more of something than the server has room for.
func tooMany(text string) error { return newProblem(http.StatusTooManyRequests, kindLimit, text) }

// problemOf returns the answer for an error.
func problemOf(err error) *problem {
	var known *problem
	var vote *redlock.QuorumError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.Canceled) && (!errors.As(err, &vote) || errors.Is(vote.Err, context.Canceled)):
		return problemOf(errLeft)
	case errors.As(err, &vote):
		return problemOfVote(vote)
	case errors.Is(err, once.ErrLate):
		return errLate
	case errors.Is(err, redlock.ErrLost):
		return newProblem(http.StatusGone, kindLost, inOurWords(err))
	case errors.Is(err, redlock.ErrReleased): // by another request, at the same time
		return errNoLease
	case errors.Is(err, redlock.ErrMarked): // by a tick, where apart_ms was given
		return newProblem(http.StatusConflict, kindDone, inOurWords(err))
	case errors.Is(err, redlock.ErrClosed):
		return errEnding
	case errors.Is(err, context.DeadlineExceeded):
		return newProblem(http.StatusServiceUnavailable, kindNoQuorum, "the Redis servers did not answer in time: ask again")
	}
	return newProblem(http.StatusInternalServerError, kindPermanent, inOurWords(err))
}

// problemOfVote returns the answer for a vote that did not succeed. At the end of a wait what was in the
// way counts, not the end.
func problemOfVote(vote *redlock.QuorumError) *problem {
	kind := vote.Kind()
	of := *vote
	of.Err = kind
	text := inOurWords(&of)
	switch {
	case errors.Is(kind, redlock.ErrHeld):
		p := newProblem(http.StatusLocked, kindHeld, text)
		p.RetryAfter, p.InTheWay = max(0, vote.Remaining.Milliseconds()), vote.InTheWay
		if vote.Holder != (redlock.Holder{}) {
			p.Holder = &holder{Owner: vote.Holder.Owner, Since: vote.Holder.Since.Format(time.RFC3339), Left: p.RetryAfter}
		}
		return p
	case errors.Is(kind, redlock.ErrLost):
		return newProblem(http.StatusGone, kindLost, text)
	case vote.Permanent():
		return newProblem(http.StatusBadGateway, kindPermanent, text)
	}
	p := newProblem(http.StatusServiceUnavailable, kindNoQuorum, text)
	p.RetryAfter = max(time.Second.Milliseconds(), vote.Remaining.Milliseconds())
	return p
}

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt((p.RetryAfter+999)/1000, 10))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	write(w, p.Status, p)
}

// write answers with a body, and returns no error, for handlers to end with it: one is the client's, who has left.
func write(w http.ResponseWriter, status int, body any) error {
	h := w.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Cache-Control", "no-store")
	within(w, answerWithin)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
	return nil
}

// within bounds how long a client may take to read: what it does not read keeps its session from ending.
// A connection without deadlines, as those of tests, is not slow.
func within(w http.ResponseWriter, d time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// A holder is one that has a lock, or a permit of it.
type holder struct {
	Permit *int   `json:"permit,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Since  string `json:"since,omitempty"`
	Left   int64  `json:"left_ms"` // unless it is renewed; -1: it never expires
}

// ofOption is how an error of the library begins, with the option that it is about.
var ofOption = regexp.MustCompile(`^redlock: (?:option (\w+)(?:\(.*?\))?: )?`)

// fields are those for the options.
var fields = map[string]string{
	"TTL": "ttl_ms", "Owner": "owner", "Permits": "permits", "Weight": "weight", "Fenced": "fenced", "Fair": "fair",
	"MaxHold": "max_hold_ms", "Patience": "wait_ms", "Exclusive": "kind", "Shared": "kind",
}

// words has what is said to programs in Go, and how it is said here.
var words = strings.NewReplacer(
	"its MaxHold of ", "max_hold_ms, ",
	"the MaxTTL", "--max-ttl of the server",
	"set MaxTTL for all clients", "an operator sets --max-ttl for this server and all clients",
	"the Locker's", "the server's",
	"; tests use package redlocktest", "",
)

// inOurWords returns the text of an error of the library.
func inOurWords(err error) string { return words.Replace(ofOption.ReplaceAllString(err.Error(), "")) }

// blame returns an error of the library that is about what was wished, in the words of the wish.
func blame(err error) error {
	head := ofOption.FindStringSubmatch(err.Error())
	if head == nil {
		return bad("%s", inOurWords(err))
	}
	text := words.Replace(err.Error()[len(head[0]):])
	if head[1] == "NodeTimeout" {
		return bad(`"ttl_ms": must be above the node timeout of the server (--node-timeout)`)
	}
	if field, ok := fields[head[1]]; ok {
		return bad("%q: %s", field, text)
	}
	return bad("%s", text)
}

// statusOf is what a load balancer and the kubelet look at.
func statusOf(good bool) int {
	if good {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}
