package conformance

import (
	"embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// answers are the table: one file per kind of operation. The name of a row is followed by its
// steps,
//
//	acquire: a held key is refused and left alone
//		acquire a 20s -> granted; acquire b 600s -> taken 20s; inspect -> holds a 20s
//
// A step is an operation, or a change behind the node's back. It has arguments by place (see
// operations), then arguments by name, and the expected reply (see replyWords). The key of a lock
// is k, unless a step names another.
//
//go:embed answers/*.txt
var answers embed.FS

// The distances between the TTLs are greater than the tolerance.
const (
	short = 20 * time.Second
	long  = 600 * time.Second
	brief = 100 * time.Millisecond // expires during a test
	soon  = brief * 9 / 10         // a brief TTL has not expired by then, and does not expire while a script runs
	fence = time.Minute            // tolerance for the difference of a token from a node's clock

	recordLife = 150 * 365 * 24 * time.Hour
)

// random has the form of the random part of a value.
const random = "0123456789abcdef0123456789abcdef01234567"

// names are abbreviations in the table for texts that are too long for it, or unprintable.
var names = strings.NewReplacer("RANDOM", random, "CUT", random[1:], "LABEL", strings.Repeat("a", 215),
	"HUGE", strings.Repeat("x", 2<<20), "BINARY", `\x00\r\n\xff*3\r\n$`, "AGES", recordLife.String(), "FAR", "3m30s")

// An operation describes the construction of a step, and the meaning of its arguments.
type operation struct {
	args string
	op   protocol.Op
	more func(*step)
	poke func(Poker, *protocol.Request)
}

var operations = map[string]operation{
	"acquire":        {args: "value ttl", op: protocol.OpAcquire},
	"extend":         {args: "value ttl", op: protocol.OpExtend},
	"release":        {args: "value", op: protocol.OpRelease, more: held},
	"look":           {args: "value", op: protocol.OpLook},
	"inspect":        {op: protocol.OpInspect},
	"again":          {more: func(s *step) { s.again = true }}, // the Request of the previous step, once more
	"watch":          {op: protocol.OpWatch},
	"mark":           {args: "mark ttl", op: protocol.OpMark},
	"slots":          {args: "n from", op: protocol.OpSlots, more: func(s *step) { s.req.Slots = &protocol.Slots{Stem: "s", Tail: "k"} }},
	"kind":           {args: "n ttl", op: protocol.OpKind, more: func(s *step) { s.req.Slots = &protocol.Slots{Stem: "s", Tail: "k", Kind: "of"} }},
	"fenced":         {args: "value token", op: protocol.OpAcquireFenced, more: fenced},
	"raise":          {args: "value token", op: protocol.OpRaise, more: fenced},
	"release-fenced": {args: "value token", op: protocol.OpReleaseFenced, more: func(s *step) { held(s); fenced(s) }},
	"share":          {args: "value ttl", op: protocol.OpShare, more: shared},
	"extend-shared":  {args: "value ttl", op: protocol.OpExtendShared, more: shared},
	"release-shared": {args: "value", op: protocol.OpReleaseShared, more: func(s *step) { held(s); shared(s); s.req.Held = false }},
	"intend":         {args: "value ttl", op: protocol.OpIntend, more: shared},
	"queue":          {args: "id waited", op: protocol.OpQueue, more: func(s *step) { s.req.Ticket = &protocol.Ticket{Life: long} }},
	"leave":          {args: "id", op: protocol.OpQueue, more: func(s *step) { s.req.Ticket = &protocol.Ticket{Life: long, Leave: true} }},
	"admit":          {op: protocol.OpAdmit, more: admit},
	"change":         {args: "old new admitted", op: protocol.OpAdmit, more: admit},

	"set":        {args: "value ttl", poke: func(p Poker, r *protocol.Request) { p.Set(r.Key, r.Value, r.TTL) }},
	"wrong-type": {poke: func(p Poker, r *protocol.Request) { p.SetWrongType(r.Key) }},
	"advance":    {args: "ttl", poke: func(p Poker, r *protocol.Request) { p.Advance(r.TTL) }},
	"counter": {args: "value", poke: func(p Poker, r *protocol.Request) {
		score, err := strconv.ParseFloat(r.Value, 64)
		must(err)
		p.SetCounter("c", score)
	}},
}

func held(s *step)   { s.req.TTL, s.req.MayHold, s.req.Held = short, true, true }
func fenced(s *step) { s.req.TTL, s.req.Counter, s.req.Slack = short, "c", fence }
func shared(s *step) { s.req.Shared = &protocol.Shared{Readers: "r", Intent: "i"} }
func admit(s *step)  { s.req.Key, s.req.Admit = "e", &protocol.Admission{} }

// replyWords are the first words of replies, with the meaning of their arguments. Missing values
// are zero.
var replyWords = map[string]struct {
	args string
	want want
}{
	"granted":     {"", want{outcome: protocol.Granted}},
	"refused":     {"ttl", want{outcome: protocol.Refused}},
	"taken":       {"ttl", want{outcome: protocol.Refused, silent: true}}, // SET NX cannot report the TTL
	"holds":       {"value ttl", want{outcome: protocol.Granted}},
	"nothing":     {"", want{outcome: protocol.Granted}},
	"reads":       {"ttl", want{outcome: protocol.Granted, value: protocol.ReadersValue}}, // the key has readers
	"read":        {"ttl", want{outcome: protocol.Refused, readers: true}},                // the reply to a writer's release
	"wrong-type":  {"", want{outcome: protocol.Failed, err: protocol.ErrWrongType}},
	"bad-counter": {"", want{outcome: protocol.Failed, err: protocol.ErrCounter}}, // no token can follow it
	"unsure":      {"", want{outcome: protocol.Unknown, err: protocol.ErrCounter}},
	"low":         {"ahead", want{outcome: protocol.Granted, low: true}}, // the lock without its token
	"floor":       {"floor", want{outcome: protocol.Granted}},
	"free":        {"free", want{outcome: protocol.Granted}},
	"first":       {"others", want{outcome: protocol.Granted}}, // with the number of tickets after it
	"behind":      {"others", want{outcome: protocol.Refused}},
	"record":      {"record", want{outcome: protocol.Granted}}, // @ is the server's clock
}

// badCounters are counters that no token can follow, with the step that makes each, and the result
// if the asker judges tokens. A ZADD GT does not repair counters above every token.
var badCounters = []struct{ name, made, taken string }{
	{"of another type", "wrong-type key=c", "unsure"},
	{"a string", "set 17 never key=c", "unsure"},
	{"infinite", "counter +Inf", "unsure"},
	{"minus infinity", "counter -Inf", "granted"},
	{"1e300", "counter 1e300", "unsure"},
	{"2^63", "counter 9223372036854775808", "unsure"},
	{"2^53-1, the last token", "counter 9007199254740991", "unsure"},
	{"-1", "counter -1", "granted"},
	{"1.5", "counter 1.5", "granted"},
}

// table returns all rows. It repeats counters.txt for each bad counter.
func table() (all []row) {
	files, err := answers.ReadDir("answers")
	must(err)
	for _, file := range files {
		text, err := answers.ReadFile("answers/" + file.Name())
		must(err)
		if file.Name() != "counters.txt" {
			all = append(all, rows(string(text))...)
			continue
		}
		for _, c := range badCounters {
			all = append(all, rows(strings.NewReplacer("COUNTER", c.name, "MADE", c.made, "TAKEN", c.taken).Replace(string(text)))...)
		}
	}
	return all
}

// rows reads a file of the table.
func rows(text string) (all []row) {
	for line := range strings.Lines(text) {
		switch {
		case line[0] != '\t':
			all = append(all, row{name: strings.TrimSpace(line)})
		default:
			last := &all[len(all)-1]
			last.steps = append(last.steps, steps(line)...)
		}
	}
	return all
}

var words = regexp.MustCompile(`(?:"[^"]*"|[^ "])+`)

func steps(line string) (all []step) {
	for text := range strings.SplitSeq(strings.TrimRight(strings.TrimSpace(line), ";"), "; ") {
		do, reply, answered := strings.Cut(text, "-> ")
		list := words.FindAllString(names.Replace(do), -1)
		operation, known := operations[list[0]]
		if !known || answered == (operation.poke != nil) {
			panic("nodetest: no step: " + text)
		}
		s := step{req: protocol.Request{Op: operation.op, Key: "k"}}
		if operation.more != nil {
			operation.more(&s)
		}
		each(operation.args, list[1:], s.set)
		if answered {
			s.want = wanted(words.FindAllString(names.Replace(reply), -1), &s.req)
		} else {
			s.poke = func(p Poker) { operation.poke(p, &s.req) }
		}
		all = append(all, s)
	}
	return all
}

// wanted reads a reply to a request.
func wanted(list []string, to *protocol.Request) want {
	reply, known := replyWords[list[0]]
	if !known {
		panic("nodetest: no reply: " + list[0])
	}
	w := reply.want
	each(reply.args, list[1:], w.set)
	return w
}

// each calls set for each word: first for the arguments by place, then for name=word, and for
// flags.
func each(places string, list []string, set func(name, word string)) {
	named := strings.Fields(places)
	for i, word := range list {
		name, value, isNamed := strings.Cut(word, "=")
		if i < len(named) && (!isNamed || word[0] == '"') {
			name, value = named[i], word
		}
		if strings.HasPrefix(value, `"`) {
			text, err := strconv.Unquote(value)
			must(err)
			value = text
		}
		set(name, value)
	}
}

func (s *step) set(name, word string) {
	switch r := &s.req; name {
	case "key":
		r.Key = word
	case "value":
		r.Value = word
	case "ttl":
		r.TTL = duration(word)
	case "timeout":
		r.Timeout = duration(word)
	case "token": // relative to the start of the row
		s.token = duration(word)
	case "block":
		r.Block = number(word)
	case "counter":
		r.Counter = word
	case "mark":
		r.Mark = number(word)
	case "n":
		r.Slots.N = int(number(word))
	case "from":
		r.Slots.From = int(number(word))
	case "id":
		r.Ticket.ID = word
	case "waited":
		r.Ticket.Waited = duration(word)
	case "life":
		r.Ticket.Life = duration(word)
	case "replaces":
		r.Ticket.Replaces = word
	case "overtaking": // a ticket that leaves also removes the first one
		r.Ticket.Overtakes = true
	case "old":
		r.Admit.Old = word
	case "new":
		r.Admit.New = word
	case "admitted":
		r.Admit.Life = duration(word)
	case "run":
		r.Admit.Run = word
	case "record": // read after the step
		r.Epoch = "e"
	case "watched":
		r.Watch = true
	case "regardless":
		r.Shared.Regardless = true
	case "behind":
		s.behind = true
	case "soon":
		s.inTime = soon
	default:
		panic("nodetest: no argument of a step: " + name)
	}
}

func (w *want) set(name, word string) {
	switch name {
	case "value":
		w.value = word
	case "ttl":
		w.ttl = duration(word)
	case "ahead":
		w.ahead = duration(word)
	case "floor":
		w.floor = number(word)
	case "others":
		w.others = int(number(word))
	case "next":
		w.next = duration(word)
	case "owner":
		w.owner = word
	case "life":
		w.life = duration(word)
	case "record":
		w.epoch = &protocol.Epoch{Record: word}
		if word != "" {
			w.life = recordLife
		}
	case "free":
		for slot := range strings.SplitSeq(word, ",") {
			w.free = append(w.free, int(number(slot)))
		}
	default:
		panic("nodetest: no part of a reply: " + name)
	}
}

func duration(word string) time.Duration {
	if word == "never" {
		return protocol.NoTTL
	}
	sum := time.Duration(0)
	for part := range strings.SplitSeq(word, "+") {
		d, err := time.ParseDuration(part)
		must(err)
		sum += d
	}
	return sum
}

func number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	must(err)
	return n
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprint("nodetest: ", err))
	}
}
