package serve

import (
	"bytes"
	"cmp"
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

// What goes over the wire. Times are milliseconds.

// sessionHeader names the session of a request.
const sessionHeader = "Redlock-Session"

// A wish is the body of a request for a lock.
type wish struct {
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

	risk time.Duration // what is left of a lock that is at risk: one that is well has more
}

// A sessionWish is the body of a request for a session.
type sessionWish struct {
	TTL   int64  `json:"ttl_ms"`
	Owner string `json:"owner"`
}

// A grant is what a lease is, which does not change. It is a part of the answer.
type grant struct {
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

// A leaseAnswer says how a lease is.
type leaseAnswer struct {
	grant
	Held     bool   `json:"held"`
	AtRisk   bool   `json:"at_risk,omitempty"` // renewals fail, and little of its time is left
	ValidFor int64  `json:"valid_for_ms"`      // from when the request was sent
	Lost     string `json:"lost,omitempty"`
	Session  string `json:"session,omitempty"` // of a lease that was asked for without one
}

// A sessionAnswer says how a session is.
type sessionAnswer struct {
	Session string        `json:"session,omitempty"` // for who has made it
	TTL     int64         `json:"ttl_ms"`
	Version int64         `json:"version"`
	Ending  bool          `json:"ending"` // the server ends: end the work, and release
	Leases  []leaseAnswer `json:"leases"`
}

// An inspection says who holds a lock.
type inspection struct {
	Name    string   `json:"name"`
	Held    bool     `json:"held"`
	Holders []holder `json:"holders"`
	Votes   int      `json:"votes"` // servers that answered
	Servers int      `json:"servers"`
}

const (
	maxBody = 256 << 10
	maxWait = time.Hour
	maxKey  = 255 // bytes of an Idempotency-Key

	leastLock = 500 * time.Millisecond // the TTL of a lock: of less nothing is left behind the margin of the answer
	leastPoll = time.Second            // how long a request waits that says what it has seen, and not for how long it waits
	day       = 24 * time.Hour
	year      = 365 * day
)

// checkText refuses what is said twice around the body, of which only one would count, and what is no text.
func checkText(r *http.Request) error {
	for _, header := range []string{sessionHeader, "Idempotency-Key", "Authorization"} {
		if n := len(r.Header.Values(header)); n > 1 {
			return bad("the header %s occurs %d times: send it once", header, n)
		}
	}
	if !utf8.ValidString(r.URL.Path) {
		return bad("the path %q must be text in UTF-8", r.URL.Path)
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad("the query %q: %v", r.URL.RawQuery, err)
	}
	for field, values := range q {
		switch {
		case len(values) > 1:
			return bad("%q occurs %d times in the query: send it once", field, len(values))
		case !utf8.ValidString(field), !utf8.ValidString(values[0]):
			return bad("%s=%q must be text in UTF-8", field, values[0])
		}
	}
	return nil
}

// decode reads a body, which may be empty. A name that is there twice, or is not UTF-8, is refused: it would
// stand for another lock than the one that was meant.
func decode(r *request, into any) error {
	kind := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); kind != "" && (err != nil || media != "application/json") {
		return bad("the Content-Type is %q, must be application/json", kind)
	} else if kind == "" && r.ContentLength != 0 {
		return bad("the Content-Type is missing, must be application/json")
	}
	if len(bytes.TrimSpace(r.body)) == 0 {
		return nil
	}
	return inWords(json.Unmarshal(r.body, into, json.RejectUnknownMembers(true)))
}

// inWords says what is wrong with a body, without Go's words.
func inWords(err error) error {
	var text *jsontext.SyntacticError
	var value *json.SemanticError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return bad("the JSON object is incomplete")
	case errors.Is(err, jsontext.ErrDuplicateName):
		errors.As(err, &text)
		return bad("%q is duplicated, the second time at byte %d: send it once", text.JSONPointer.LastToken(), text.ByteOffset)
	case errors.As(err, &text) && text.JSONPointer != "":
		return bad("%q: %v at byte %d", strings.TrimPrefix(string(text.JSONPointer), "/"), text.Err, text.ByteOffset)
	case errors.As(err, &text):
		return bad("the body must be one JSON object: %v at byte %d", text.Err, text.ByteOffset)
	case errors.As(err, &value):
		return inWordsOf(value)
	}
	return err
}

// inWordsOf says what is wrong with a value.
func inWordsOf(value *json.SemanticError) error {
	field, _, _ := strings.Cut(strings.TrimPrefix(string(value.JSONPointer), "/"), "/") // and the place in its list
	got := map[string]string{"[": "a list", "{": "an object", "true": "true or false", "false": "true or false"}
	kind := value.JSONKind.String()
	kind = cmp.Or(got[kind], kind)
	switch {
	case errors.Is(value, json.ErrUnknownName):
		return bad("unknown field %q at byte %d", value.JSONPointer.LastToken(), value.ByteOffset)
	case field == "":
		return bad("the body must be a JSON object, not %s", kind)
	}
	wanted := map[string]string{"string": "text", "bool": "true or false", "int64": "a whole number", "int": "a whole number", "[]string": "a list of text"}
	return bad("%q must be %s, not %s", field, wanted[value.GoType.String()], cmp.Or(string(value.JSONValue), kind))
}

// number returns a number in the query, or otherwise if it is not there.
func (r *request) number(field string, otherwise int64, wanted string) (int64, error) {
	text := r.URL.Query().Get(field)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, bad("%s=%s: must be %s", field, text, wanted)
	}
	return n, nil
}

// longPoll returns what a request says of how long it waits.
func longPoll(r *request) (seen int64, wait time.Duration, err error) {
	if seen, err = r.number("seen", 0, "the version in the last answer"); err != nil {
		return 0, 0, err
	}
	least := int64(0)
	if r.URL.Query().Get("seen") != "" { // a client that asks in a loop would ask without a pause
		least = leastPoll.Milliseconds()
	}
	n, err := r.number("wait_ms", least, "a whole number of milliseconds")
	switch q := r.URL.Query(); {
	case q.Has("wait_ms") && q.Get("seen") == "":
		return 0, 0, bad("wait_ms needs seen=VERSION, the version in the last answer")
	case err == nil:
		err = between("wait_ms", n, 0, maxWait)
	}
	return seen, millis(n), err
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func inMillis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// between returns what is wrong with a field that is a time, or nil.
func between(field string, n int64, least, most time.Duration) error {
	if n < least.Milliseconds() || n > most.Milliseconds() {
		return bad("%q: %d must be between %d and %d", field, n, least.Milliseconds(), most.Milliseconds())
	}
	return nil
}

// checkOwner refuses a label that people cannot tell from another.
func checkOwner(label string) error {
	if why := plain.Untidy(label); why != "" {
		return bad(`"owner": %q %s`, label, why)
	}
	return nil
}

// check completes a wish and refuses what contradicts itself.
func (w *wish) check(ttl time.Duration) error {
	if w.Kind == "" {
		w.Kind = "exclusive"
		if w.Permits > 1 {
			w.Kind = "permits"
		}
	}
	for _, name := range w.names() {
		if why := plain.Untidy(name); why != "" {
			return bad(`"name": %q %s: it is another lock than %q`, name, why, plain.Tidy(name))
		}
	}
	if err := checkOwner(w.Owner); err != nil {
		return err
	}
	isForOne := len(w.Names) == 0 && w.Kind == "exclusive"
	switch {
	case w.Name == "" && len(w.Names) == 0:
		return bad(`"name" is missing: specify the lock, or several as "names"`)
	case w.Name != "" && len(w.Names) > 0:
		return bad(`"name" and "names" exclude each other`)
	case w.Kind != "exclusive" && w.Kind != "shared" && w.Kind != "permits":
		return bad(`"kind": %q must be exclusive, shared or permits`, w.Kind)
	case w.Permits < 0 || w.Weight < 0:
		return bad(`"permits" and "weight" must be above zero, or omitted`)
	case w.Kind == "permits" && w.Permits < 2:
		return bad(`"permits": %d must be at least 2: it is the number of holders`, w.Permits)
	case w.Kind != "permits" && w.Permits > 1:
		return bad(`"kind" %q and "permits" %d exclude each other`, w.Kind, w.Permits)
	case w.Kind != "permits" && w.Weight > 1:
		return bad(`"weight" needs "permits"`)
	case w.Weight > max(w.Permits, 1):
		return bad(`"weight": %d must be at most "permits", which is %d`, w.Weight, w.Permits)
	case w.Fair && w.Kind == "permits":
		return bad(`"fair" excludes "permits"`)
	case w.Kind != "exclusive" && len(w.Names) > 1:
		return bad(`"names" and "kind" %q exclude each other`, w.Kind)
	case w.Kind == "shared" && w.Fenced, w.Weight > 1 && w.Fenced:
		return bad(`"fenced" excludes "kind" shared and "weight": a token is of one holder`)
	case w.Every != 0 && w.DayIn != "", w.Every != 0 && w.Apart != 0, w.DayIn != "" && w.Apart != 0:
		return bad(`"every_ms", "every_day_in" and "apart_ms" exclude each other`)
	case w.Every != 0 && !isForOne:
		return bad(`"every_ms" needs one "name" and "kind" exclusive`)
	case w.DayIn != "" && !isForOne:
		return bad(`"every_day_in" needs one "name" and "kind" exclusive`)
	case w.Apart != 0 && !isForOne:
		return bad(`"apart_ms" needs one "name" and "kind" exclusive`)
	case w.DayIn != "" && w.ticks() == nil:
		return bad(`"every_day_in": %q must be a name of the time zone database, such as Europe/Berlin, America/New_York or UTC`, w.DayIn)
	}
	w.TTL = cmp.Or(w.TTL, ttl.Milliseconds())
	if wrong := slots.Wrong(millis(w.Every), inMillis); w.Every >= time.Second.Milliseconds() && wrong != "" {
		return bad(`"every_ms": %d %s`, w.Every, wrong)
	}
	return cmp.Or(
		between("every_ms", cmp.Or(w.Every, day.Milliseconds()), time.Second, day),
		between("apart_ms", cmp.Or(w.Apart, year.Milliseconds()), time.Second, year),
		between("ttl_ms", w.TTL, leastLock, year),
		between("wait_ms", w.Wait, 0, maxWait),
		between("max_hold_ms", w.MaxHold, 0, year),
	)
}

// names returns those of the locks that are wanted, each once.
func (w *wish) names() []string {
	if len(w.Names) == 0 {
		return []string{w.Name}
	}
	return slices.Compact(slices.Sorted(slices.Values(w.Names)))
}

// options returns the wish as options for the lock.
func (w *wish) options() []redlock.Option {
	opts := []redlock.Option{
		redlock.TTL(millis(w.TTL)), redlock.Owner(w.Owner), redlock.Exclusive(), redlock.Permits(max(w.Permits, 1)), redlock.Weight(max(w.Weight, 1)),
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
		opts = append(opts, redlock.MaxHold(millis(w.MaxHold)))
	}
	if w.Wait == 0 {
		return append(opts, redlock.Retries(0))
	}
	return append(opts, redlock.Patience(millis(w.Wait)))
}

// grant returns what does not change of a lock that was taken.
func (w *wish) grant(lock *redlock.Lock, asked time.Time) grant {
	g := grant{Names: lock.Names(), Kind: w.Kind, Owner: w.Owner, TTL: w.TTL}
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
	switch ticks := w.ticks(); {
	case ticks == nil:
	case w.Apart != 0: // which has no ticks
	case w.DayIn != "":
		g.Tick = ticks.Tick(asked).Format(time.DateOnly)
	default:
		g.Tick = ticks.Tick(asked).UTC().Format(time.RFC3339Nano)
	}
	return g
}

// ticks returns what a tick is for the wish, or nil if it has none.
func (w *wish) ticks() *once.Job {
	switch zone, err := time.LoadLocation(w.DayIn); {
	case w.Every != 0:
		return &once.Job{Every: millis(w.Every)}
	case w.Apart != 0:
		return &once.Job{Apart: millis(w.Apart)}
	case w.DayIn == "", err != nil, zone == time.Local, w.DayIn == "localtime": // which differ from one machine to the next
		return nil
	default:
		return &once.Job{Day: zone}
	}
}
