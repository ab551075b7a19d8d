package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// A Problem is the answer to a failed request, in the form of RFC 9457. Kind is for programs. A
// Problem is also an error.
type Problem struct {
	Type       string   `json:"type"` // "about:blank": Kind has the type
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Kind       string   `json:"kind"`
	Holder     *Holder  `json:"holder,omitempty"`         // for kind held, if the holder has a label
	InTheWay   []string `json:"in_the_way,omitempty"`     // blocking names, if several names were requested
	RetryAfter int64    `json:"retry_after_ms,omitempty"` // a hint
	Right      string   `json:"right,omitempty"`          // for kind forbidden: the missing right,
	Pattern    string   `json:"pattern,omitempty"`        // and its pattern
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// The kinds of problems.
const (
	KindBad       = "bad_request"
	KindForbidden = "forbidden"
	KindSession   = "no_session"
	KindLease     = "no_lease"
	KindConflict  = "other_request"
	KindHeld      = "held"
	KindDone      = "done" // the tick has been run, or the last start was too recent
	KindLate      = "late" // it is no longer known whether the tick has been run
	KindLost      = "lost"
	KindNoQuorum  = "no_quorum"
	KindPermanent = "permanent" // the servers must be changed before they can grant the lock
	KindLimit     = "limit"
	KindEnding    = "ending"
)

// Kinds lists the kinds of problems.
var Kinds = []string{
	KindBad, KindForbidden, KindSession, KindLease, KindConflict, KindHeld, KindDone, KindLate, KindLost, KindNoQuorum, KindPermanent, KindLimit, KindEnding,
}

var (
	ErrEnding = NewProblem(http.StatusServiceUnavailable, KindEnding, "the server is shutting down: ask again when it is back")
	errLate   = NewProblem(http.StatusConflict, KindLate, "the lock was granted too late to know whether the tick of this request has been run: send a new request, for the current tick")
	ErrDone   = NewProblem(http.StatusConflict, KindDone, "the tick has been run, is being run, or was marked by a request that got no lock, and will not be run")
	ErrSoon   = NewProblem(http.StatusConflict, KindDone, "the last start was less than apart_ms ago")
	// ErrLeft is the answer to a client that has left. Only a client that has shut down its writing
	// side reads it.
	ErrLeft         = Bad("the connection was closed before the answer: keep it open in both directions until the answer has arrived")
	ErrNoSession    = NewProblem(http.StatusNotFound, KindSession, "no such session: it never existed, was ended, or sent no request for its TTL")
	ErrNoLease      = NewProblem(http.StatusNotFound, KindLease, "no such lease: it never existed, was released, or its session has ended")
	ErrOtherRequest = NewProblem(http.StatusUnprocessableEntity, KindConflict, "the Idempotency-Key was used for another request: use a new key for each lock")
	ErrOver         = NewProblem(http.StatusGone, KindLease, "the lock of this Idempotency-Key was released: use a new key for each lock")
	ErrUnderWay     = NewProblem(http.StatusLocked, KindHeld, "an earlier request with this Idempotency-Key is still waiting for the lock")
	ErrResuming     = &Problem{Type: "about:blank", Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable, Kind: KindNoQuorum,
		Detail: "the server was restarted and is taking over the locks of its clients, and too few Redis servers have answered yet: ask again", RetryAfter: 1000}
	ErrNoOffice = NewProblem(http.StatusNotFound, KindBad, "this server is not a candidate: start redlock serve with --office")
	ErrTermOver = NewProblem(http.StatusGone, KindLost, "this candidate does not lead with that token")
)

const (
	MaxBody      = 256 << 10 // bytes
	BodyWithin   = 10 * time.Second
	AnswerWithin = 10 * time.Second // time limit for a client to read a part of the answer
)

// NewProblem returns a problem without the fields of special kinds.
func NewProblem(status int, kind, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Kind: kind}
}

// Bad returns the problem of a malformed request.
func Bad(format string, args ...any) error {
	return NewProblem(http.StatusBadRequest, KindBad, fmt.Sprintf(format, args...))
}

// BadBody returns the answer for an unreadable body, which is the client's or the network's fault.
func BadBody(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return NewProblem(http.StatusRequestEntityTooLarge, KindBad, fmt.Sprintf("the body is too large: at most %d bytes are allowed", MaxBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return NewProblem(http.StatusRequestTimeout, KindBad, "the body did not arrive within "+BodyWithin.String())
	}
	return Bad("the body is incomplete, or its chunks are malformed: %v", err)
}

// TooMany returns the problem of an exceeded limit.
func TooMany(text string) error { return NewProblem(http.StatusTooManyRequests, KindLimit, text) }

// ProblemOf returns the answer for an error.
func ProblemOf(err error) *Problem {
	var known *Problem
	var vote *redlock.QuorumError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.Canceled) && (!errors.As(err, &vote) || errors.Is(vote.Err, context.Canceled)):
		return ProblemOf(ErrLeft)
	case errors.As(err, &vote):
		return problemOfVote(vote)
	case errors.Is(err, once.ErrLate):
		return errLate
	case errors.Is(err, redlock.ErrLost):
		return NewProblem(http.StatusGone, KindLost, Text(err))
	case errors.Is(err, redlock.ErrReleased): // released by another request at the same time
		return ErrNoLease
	case errors.Is(err, redlock.ErrMarked): // marked by a tick, although apart_ms was specified
		return NewProblem(http.StatusConflict, KindDone, Text(err))
	case errors.Is(err, redlock.ErrClosed):
		return ErrEnding
	case errors.Is(err, context.DeadlineExceeded):
		return NewProblem(http.StatusServiceUnavailable, KindNoQuorum, "the Redis servers did not answer in time: ask again")
	}
	return NewProblem(http.StatusInternalServerError, KindPermanent, Text(err))
}

// problemOfVote returns the answer for a vote without success. At the end of a wait the answer
// names the obstacle, not the end.
func problemOfVote(vote *redlock.QuorumError) *Problem {
	kind := vote.Kind()
	of := *vote
	of.Err = kind
	text := Text(&of)
	switch {
	case errors.Is(kind, redlock.ErrHeld):
		p := NewProblem(http.StatusLocked, KindHeld, text)
		p.RetryAfter, p.InTheWay = max(0, vote.Remaining.Milliseconds()), vote.InTheWay
		if vote.Holder != (redlock.Holder{}) {
			p.Holder = &Holder{Owner: vote.Holder.Owner, Since: vote.Holder.Since.Format(time.RFC3339), Left: p.RetryAfter}
		}
		return p
	case errors.Is(kind, redlock.ErrLost):
		return NewProblem(http.StatusGone, KindLost, text)
	case vote.Permanent():
		return NewProblem(http.StatusBadGateway, KindPermanent, text)
	}
	p := NewProblem(http.StatusServiceUnavailable, KindNoQuorum, text)
	p.RetryAfter = max(time.Second.Milliseconds(), vote.Remaining.Milliseconds())
	return p
}

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt((p.RetryAfter+999)/1000, 10))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	Write(w, p.Status, p)
}

// Write answers with a body. It returns nil, so that handlers can end with it: a write fails only
// if the client has left.
func Write(w http.ResponseWriter, status int, body any) error {
	Begin(w, status, body)()
	return nil
}

// Begin answers with a body except for the end of its JSON, which end writes. No client can use the
// answer before that.
func Begin(w http.ResponseWriter, status int, body any) (end func()) {
	h := w.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Cache-Control", "no-store")
	ReadWithin(w, AnswerWithin)
	w.WriteHeader(status)
	text, _ := json.Marshal(body)
	last := max(0, len(text)-1) // the closing brace
	w.Write(text[:last])
	return func() { w.Write(append(text[last:], '\n')) }
}

// ReadWithin limits the time for a client to read, because an unread answer keeps its session from
// ending. Connections of tests have no deadlines, and are not slow.
func ReadWithin(w http.ResponseWriter, d time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// A Holder has a lock, or a permit of it.
type Holder struct {
	Permit *int   `json:"permit,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Since  string `json:"since,omitempty"`
	Fence  int64  `json:"fence,omitempty"` // known to the server that granted it
	Left   int64  `json:"left_ms"`         // time until expiry without a renewal; -1 if it never expires
}

// fields are the fields for the options.
var fields = map[string]string{
	"TTL": "ttl_ms", "Owner": "owner", "Permits": "permits", "Weight": "weight", "Fenced": "fenced", "Fair": "fair",
	"MaxHold": "max_hold_ms", "Patience": "wait_ms", "Exclusive": "kind", "Shared": "kind",
}

// words replaces the terms of the Go library with the terms of HTTP.
var words = strings.NewReplacer(
	"its MaxHold of ", "max_hold_ms, ",
	"the MaxTTL", "--max-ttl of the server",
	"set MaxTTL for all clients", "an operator sets --max-ttl for this server and all clients",
	"the Locker's", "the server's",
	"; tests use package redlocktest", "",
)

// Text returns the text of an error of the library.
func Text(err error) string {
	if refused := new(redlock.OptionError); errors.As(err, &refused) {
		return words.Replace(refused.Reason)
	}
	return words.Replace(strings.TrimPrefix(err.Error(), "redlock: "))
}

// Blame returns a library error about the request, in the terms of the request.
func Blame(err error) error {
	if refused := new(redlock.OptionError); errors.As(err, &refused) {
		if refused.Option == "NodeTimeout" {
			return Bad(`"ttl_ms": must be above the node timeout of the server (--node-timeout)`)
		}
		if field, ok := fields[refused.Option]; ok {
			return Bad("%q: %s", field, Text(err))
		}
	}
	return Bad("%s", Text(err))
}

// StatusIf returns the status for a load balancer and the kubelet.
func StatusIf(good bool) int {
	if good {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}
