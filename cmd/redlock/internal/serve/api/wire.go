// Package api has the bodies of requests to "redlock serve" and of its answers, the checks of
// requests, and problems. It does not depend on sessions. Times are milliseconds.
package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/slots"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// SessionHeader names the session of a request.
const SessionHeader = "Redlock-Session"

// A LockRequest is the body of a request for a lock.
type LockRequest struct {
	Name    string   `json:"name"`
	Names   []string `json:"names"`
	Kind    string   `json:"kind"` // exclusive, shared or permits
	Permits int      `json:"permits"`
	Weight  int      `json:"weight"`
	Fenced  bool     `json:"fenced"`
	Fair    bool     `json:"fair"`
	Owner   string   `json:"owner"`
	TTL     int64    `json:"ttl_ms"`
	Wait    int64    `json:"wait_ms"`
	MaxHold int64    `json:"max_hold_ms"`
	Every   int64    `json:"every_ms"`
	DayIn   string   `json:"every_day_in"` // a time zone
	Apart   int64    `json:"apart_ms"`
}

// A SessionRequest is the body of a request for a session.
type SessionRequest struct {
	TTL   int64  `json:"ttl_ms"`
	Owner string `json:"owner"`
}

// A Grant is the constant part of a lease. It is a part of the answer.
type Grant struct {
	Lease   string           `json:"lease"`
	Names   []string         `json:"names"`
	Kind    string           `json:"kind"`
	Owner   string           `json:"owner,omitempty"`
	Fence   int64            `json:"fence,omitempty"`
	Fences  map[string]int64 `json:"fences,omitempty"`
	Permits []int            `json:"permits,omitempty"`
	Tick    string           `json:"tick,omitempty"`
	TTL     int64            `json:"ttl_ms"`
}

// A LeaseAnswer is the state of a lease.
type LeaseAnswer struct {
	Grant
	Held     bool   `json:"held"`
	AtRisk   bool   `json:"at_risk,omitempty"` // renewals fail, and its TTL ends soon
	ValidFor int64  `json:"valid_for_ms"`      // counted from the sending of the request
	Lost     string `json:"lost,omitempty"`
	Session  string `json:"session,omitempty"` // session created for a lease without one
}

// A SessionAnswer is the state of a session.
type SessionAnswer struct {
	Session string        `json:"session,omitempty"` // only for the client that created it
	TTL     int64         `json:"ttl_ms"`
	Version int64         `json:"version"`
	Ending  bool          `json:"ending"` // the server is shutting down: end the work, and release
	Leases  []LeaseAnswer `json:"leases"`
}

// Sessions are a part of the sessions of all clients, for an operator, without secrets.
type Sessions struct {
	Total    int             `json:"total"` // number of sessions
	Sessions []ListedSession `json:"sessions"`
}

// A ListedSession is a session, in the form for others than its client.
type ListedSession struct {
	ID       string        `json:"id"` // public ID
	Client   string        `json:"client,omitempty"`
	Owner    string        `json:"owner,omitempty"`
	TTL      int64         `json:"ttl_ms"`
	Ended    bool          `json:"ended,omitempty"` // ended by an operator; keeps its leases until the last promise to the client ends
	Requests int           `json:"requests"`        // requests in progress
	Total    int           `json:"total"`           // number of leases
	Leases   []ListedLease `json:"leases"`
	Waits    []string      `json:"waits"` // names of locks that it waits for
}

// A ListedLease is a lease, in the form for others than its client.
type ListedLease struct {
	ID     string           `json:"id"` // public ID
	Names  []string         `json:"names"`
	Kind   string           `json:"kind"`
	Owner  string           `json:"owner,omitempty"`
	Fence  int64            `json:"fence,omitempty"`
	Fences map[string]int64 `json:"fences,omitempty"`
	Lost   string           `json:"lost,omitempty"`
}

// PublicID returns the ID of a session or a lease for others than its client. It is a hash of the
// client's ID, which is a secret: any client of the label that has it can use the session. The
// secret cannot be computed from the hash, because it is long and random.
func PublicID(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:8])
}

// IsPublic reports whether an ID is a public ID.
func IsPublic(id string) bool {
	sum, err := hex.DecodeString(id)
	return err == nil && len(sum) == 8
}

// An Inspection names the holders of a lock.
type Inspection struct {
	Name    string   `json:"name"`
	Held    bool     `json:"held"`
	Holders []Holder `json:"holders"`
	Votes   int      `json:"votes"` // servers that answered
	Servers int      `json:"servers"`
	Version int64    `json:"version"` // changes with the holders; 0 without a holder
}

const (
	maxWait = time.Hour
	MaxKey  = 255 // bytes of an Idempotency-Key

	leastLock = 500 * time.Millisecond // minimum TTL of a lock: the margin of the answer would use up a shorter one
	leastPoll = time.Second            // wait of a request with seen and without wait_ms
	day       = 24 * time.Hour
	Year      = 365 * day
)

// CheckText rejects duplicated headers and query fields, because only one would count, and values
// that are not text.
func CheckText(r *http.Request) error {
	for _, header := range []string{SessionHeader, "Idempotency-Key", "Authorization"} {
		if n := len(r.Header.Values(header)); n > 1 {
			return Bad("the header %s occurs %d times: send it once", header, n)
		}
	}
	if !utf8.ValidString(r.URL.Path) {
		return Bad("the path %q must be text in UTF-8", r.URL.Path)
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Bad("the query %q: %v", r.URL.RawQuery, err)
	}
	for field, values := range q {
		switch {
		case len(values) > 1:
			return Bad("%q occurs %d times in the query: send it once", field, len(values))
		case !utf8.ValidString(field), !utf8.ValidString(values[0]):
			return Bad("%s=%q must be text in UTF-8", field, values[0])
		}
	}
	return nil
}

// Decode reads a body, which may be empty. It rejects a field that is duplicated, or is not UTF-8,
// because it could name a lock other than the one that the client meant.
func Decode(r *http.Request, body []byte, into any) error {
	kind := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); kind != "" && (err != nil || media != "application/json") {
		return Bad("the Content-Type is %q, must be application/json", kind)
	} else if kind == "" && r.ContentLength != 0 {
		return Bad("the Content-Type is missing, must be application/json")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	return inWords(json.Unmarshal(body, into, json.RejectUnknownMembers(true)))
}

// inWords describes the error of a body without terms of Go.
func inWords(err error) error {
	var text *jsontext.SyntacticError
	var value *json.SemanticError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Bad("the JSON object is incomplete")
	case errors.Is(err, jsontext.ErrDuplicateName):
		errors.As(err, &text)
		return Bad("%q is duplicated, the second time at byte %d: send it once", text.JSONPointer.LastToken(), text.ByteOffset)
	case errors.As(err, &text) && text.JSONPointer != "":
		return Bad("%q: %v at byte %d", strings.TrimPrefix(string(text.JSONPointer), "/"), text.Err, text.ByteOffset)
	case errors.As(err, &text):
		return Bad("the body must be one JSON object: %v at byte %d", text.Err, text.ByteOffset)
	case errors.As(err, &value):
		return inWordsOf(value)
	}
	return err
}

// inWordsOf describes the error of a value.
func inWordsOf(value *json.SemanticError) error {
	field, _, _ := strings.Cut(strings.TrimPrefix(string(value.JSONPointer), "/"), "/") // without the index in its list
	got := map[string]string{"[": "a list", "{": "an object", "true": "true or false", "false": "true or false"}
	kind := value.JSONKind.String()
	kind = cmp.Or(got[kind], kind)
	switch {
	case errors.Is(value, json.ErrUnknownName):
		return Bad("unknown field %q at byte %d", value.JSONPointer.LastToken(), value.ByteOffset)
	case field == "":
		return Bad("the body must be a JSON object, not %s", kind)
	}
	wanted := map[string]string{"string": "text", "bool": "true or false", "int64": "a whole number", "int": "a whole number", "[]string": "a list of text"}
	return Bad("%q must be %s, not %s", field, wanted[value.GoType.String()], cmp.Or(string(value.JSONValue), kind))
}

// Number returns a number in the query. If the query does not have the number, it returns
// otherwise.
func Number(r *http.Request, field string, otherwise int64, wanted string) (int64, error) {
	text := r.URL.Query().Get(field)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, Bad("%s=%s: must be %s", field, text, wanted)
	}
	return n, nil
}

// LongPoll returns the version that a client has seen, and its time limit for another version.
func LongPoll(r *http.Request) (seen int64, wait time.Duration, err error) {
	if seen, err = Number(r, "seen", 0, "the version in the last answer"); err != nil {
		return 0, 0, err
	}
	least := int64(0)
	if r.URL.Query().Get("seen") != "" { // a client that polls in a loop would not pause
		least = leastPoll.Milliseconds()
	}
	n, err := Number(r, "wait_ms", least, "a whole number of milliseconds")
	switch q := r.URL.Query(); {
	case q.Has("wait_ms") && q.Get("seen") == "":
		return 0, 0, Bad("wait_ms needs seen=VERSION, the version in the last answer")
	case err == nil:
		err = Between("wait_ms", n, 0, maxWait)
	}
	return seen, Duration(n), err
}

// Duration returns n milliseconds.
func Duration(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func inMillis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Between returns the problem of a time outside its limits, or nil.
func Between(field string, n int64, least, most time.Duration) error {
	if n < least.Milliseconds() || n > most.Milliseconds() {
		return Bad("%q: %d must be between %d and %d", field, n, least.Milliseconds(), most.Milliseconds())
	}
	return nil
}

// CheckOwner rejects a label that people cannot distinguish from another.
func CheckOwner(label string) error {
	if why := plain.Untidy(label); why != "" {
		return Bad(`"owner": %q %s`, label, why)
	}
	return nil
}

// Check completes a request, and rejects conflicting fields.
func (w *LockRequest) Check(ttl time.Duration) error {
	if w.Kind == "" {
		w.Kind = "exclusive"
		if w.Permits > 1 {
			w.Kind = "permits"
		}
	}
	for _, name := range w.AllNames() {
		if why := plain.Untidy(name); why != "" {
			return Bad(`"name": %q %s: it is another lock than %q`, name, why, plain.Tidy(name))
		}
	}
	if err := CheckOwner(w.Owner); err != nil {
		return err
	}
	isForOne := len(w.Names) == 0 && w.Kind == "exclusive"
	switch {
	case w.Name == "" && len(w.Names) == 0:
		return Bad(`"name" is missing: specify the lock, or several as "names"`)
	case w.Name != "" && len(w.Names) > 0:
		return Bad(`"name" and "names" exclude each other`)
	case w.Kind != "exclusive" && w.Kind != "shared" && w.Kind != "permits":
		return Bad(`"kind": %q must be exclusive, shared or permits`, w.Kind)
	case w.Permits < 0 || w.Weight < 0:
		return Bad(`"permits" and "weight" must be above zero, or omitted`)
	case w.Kind == "permits" && w.Permits < 2:
		return Bad(`"permits": %d must be at least 2: it is the number of holders`, w.Permits)
	case w.Kind != "permits" && w.Permits > 1:
		return Bad(`"kind" %q and "permits" %d exclude each other`, w.Kind, w.Permits)
	case w.Kind != "permits" && w.Weight > 1:
		return Bad(`"weight" needs "permits"`)
	case w.Weight > max(w.Permits, 1):
		return Bad(`"weight": %d must be at most "permits", which is %d`, w.Weight, w.Permits)
	case w.Fair && w.Kind == "permits":
		return Bad(`"fair" excludes "permits"`)
	case w.Kind != "exclusive" && len(w.Names) > 1:
		return Bad(`"names" and "kind" %q exclude each other`, w.Kind)
	case w.Kind == "shared" && w.Fenced, w.Weight > 1 && w.Fenced:
		return Bad(`"fenced" excludes "kind" shared and "weight": a token belongs to one holder`)
	case w.Every != 0 && w.DayIn != "", w.Every != 0 && w.Apart != 0, w.DayIn != "" && w.Apart != 0:
		return Bad(`"every_ms", "every_day_in" and "apart_ms" exclude each other`)
	case w.Every != 0 && !isForOne:
		return Bad(`"every_ms" needs one "name" and "kind" exclusive`)
	case w.DayIn != "" && !isForOne:
		return Bad(`"every_day_in" needs one "name" and "kind" exclusive`)
	case w.Apart != 0 && !isForOne:
		return Bad(`"apart_ms" needs one "name" and "kind" exclusive`)
	case w.DayIn != "" && w.Ticks() == nil:
		return Bad(`"every_day_in": %q must be a name of the time zone database, such as Europe/Berlin, America/New_York or UTC`, w.DayIn)
	}
	w.TTL = cmp.Or(w.TTL, ttl.Milliseconds())
	if wrong := slots.Wrong(Duration(w.Every), inMillis); w.Every >= time.Second.Milliseconds() && wrong != "" {
		return Bad(`"every_ms": %d %s`, w.Every, wrong)
	}
	return cmp.Or(
		Between("every_ms", cmp.Or(w.Every, day.Milliseconds()), time.Second, day),
		Between("apart_ms", cmp.Or(w.Apart, Year.Milliseconds()), time.Second, Year),
		Between("ttl_ms", w.TTL, leastLock, Year),
		Between("wait_ms", w.Wait, 0, maxWait),
		Between("max_hold_ms", w.MaxHold, 0, Year),
	)
}

// AllNames returns the names in the request, each once.
func (w *LockRequest) AllNames() []string {
	if len(w.Names) == 0 {
		return []string{w.Name}
	}
	return slices.Compact(slices.Sorted(slices.Values(w.Names)))
}

// Options returns the request as options for the lock.
func (w *LockRequest) Options() []redlock.Option {
	opts := []redlock.Option{
		redlock.TTL(Duration(w.TTL)), redlock.Owner(w.Owner), redlock.Exclusive(), redlock.Permits(max(w.Permits, 1)), redlock.Weight(max(w.Weight, 1)),
	}
	if w.Kind == "shared" {
		opts = append(opts, redlock.Shared())
	}
	if w.Fenced {
		opts = append(opts, redlock.Fenced())
	}
	if w.Fair {
		opts = append(opts, redlock.Fair())
	}
	if w.MaxHold > 0 {
		opts = append(opts, redlock.MaxHold(Duration(w.MaxHold)))
	}
	if w.Wait == 0 {
		return append(opts, redlock.Retries(0))
	}
	return append(opts, redlock.Wait(Duration(w.Wait)), redlock.Patience(Duration(w.Wait)))
}

// Grant returns the constant part of a lease for the lock.
func (w *LockRequest) Grant(lock *redlock.Lock, asked time.Time) Grant {
	g := Grant{Names: lock.Names(), Kind: w.Kind, Owner: w.Owner, TTL: w.TTL}
	switch {
	case w.Fenced && len(g.Names) > 1:
		g.Fences = map[string]int64{}
		for _, name := range g.Names {
			g.Fences[name] = lock.FenceOf(name)
		}
	case w.Fenced:
		g.Fence = lock.Fence()
	}
	if w.Kind == "permits" {
		g.Permits = lock.Permits()
	}
	switch ticks := w.Ticks(); {
	case ticks == nil:
	case w.Apart != 0: // without ticks
	case w.DayIn != "":
		g.Tick = ticks.Tick(asked).Format(time.DateOnly)
	default:
		g.Tick = ticks.Tick(asked).UTC().Format(time.RFC3339Nano)
	}
	return g
}

// Ticks returns the ticks of the request, or nil.
func (w *LockRequest) Ticks() *once.Job {
	switch zone, err := time.LoadLocation(w.DayIn); {
	case w.Every != 0:
		return &once.Job{Every: Duration(w.Every)}
	case w.Apart != 0:
		return &once.Job{Apart: Duration(w.Apart)}
	case w.DayIn == "", err != nil, zone == time.Local, w.DayIn == "localtime": // zones that differ between machines
		return nil
	default:
		return &once.Job{Day: zone}
	}
}
