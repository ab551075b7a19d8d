package explore

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// What makes two worlds one state. They have the same hash then, which is made of
//
//   - times from now on, not since the beginning;
//   - values and ballots by where they are first come by, and in which order they were drawn;
//   - nothing that only callers are told, and nothing that is set anew before it is looked at again.
//
// The last depends on how package core reads its fields: see unheard and partly. If it comes to read one of
// them at another time, worlds of one state go on differently, and TestWorldsOfOneStateGoOnAlike tells.

// A hasher hashes plain data, as it is found by address.
type hasher struct {
	sum   uint64
	now   clock.Instant
	known []unsafe.Pointer
	names names
	seqs  []int64
	phase byte // of the key

	vote, undo *core.Ballot // whose answers are still weighed
	isBrief    bool         // who has answered how, and not what else
}

// Names are the values that a process knows, in the order in which they are come by.
type names []string

func mixed(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9E3779B97F4A7C15, b^0xE7037ED1A0B428DB)
	return hi ^ lo ^ a
}

func (h *hasher) number(n uint64) { h.sum = mixed(h.sum, n) }

// A hashing is how a value of a type is hashed.
type hashing func(h *hasher, at unsafe.Pointer)

// unheard are fields that change nothing of what comes.
var unheard = map[reflect.Type][]string{
	reflect.TypeFor[message]():           {"at", "order", "back"},
	reflect.TypeFor[process]():           {"proven", "group", "print", "drawn", "resumes", "wire", "voted", "floor"}, // see printOf
	reflect.TypeFor[caller]():            {"process", "came"},
	reflect.TypeFor[core.Key]():          {"Group", "seq", "effects"},
	reflect.TypeFor[core.Caller]():       {"Shell", "Failure", "Votes"}, // told when a call ends
	reflect.TypeFor[core.Hold]():         {"Lost"},
	knownType:                            {"votes"},               // told
	typeOf(contestType, "intent").Elem(): {"traceless", "traced"}, // say only when a writer tells readers of itself
	reflect.TypeFor[core.Failure]():      {"Outage", "Owner"},
	reflect.TypeFor[core.Answer]():       {"After", "Owner"},
}

// sequences are fields that number a key's ballots: only their order matters.
var sequences = map[reflect.Type][]string{
	reflect.TypeFor[core.Ballot](): {"seq"},
	reflect.TypeFor[core.Claim]():  {"proof"},
	troubleType:                    {"refused"},
}

// The types of a key's parts, which are not exported.
var (
	contestType = typeOf(reflect.TypeFor[core.Key](), "contest").Elem()
	placeType   = typeOf(contestType, "place")
	knownType   = typeOf(reflect.TypeFor[core.Claim](), "known")
	lookoutType = typeOf(contestType, "look")
	troubleType = typeOf(reflect.TypeFor[core.Claim](), "trouble").Elem()

	voteAt    = offsetOf(contestType, "vote")
	undoAt    = offsetOf(contestType, "undo")
	answersAt = offsetOf(reflect.TypeFor[core.Ballot](), "answers")
)

func typeOf(t reflect.Type, field string) reflect.Type {
	f, ok := t.FieldByName(field)
	if !ok {
		panic(t.String() + " has no " + field)
	}
	return f.Type
}

func offsetOf(t reflect.Type, field string) uintptr {
	f, ok := t.FieldByName(field)
	if !ok {
		panic(t.String() + " has no " + field)
	}
	return f.Offset
}

// The phases of a contest, as package core numbers them.
const (
	voting byte = iota + 1
	undoing
	ordered
	resting
)

func inVote(h *hasher, of hashing, at unsafe.Pointer) {
	if h.phase == voting {
		of(h, at)
	}
}

func inOrder(h *hasher, of hashing, at unsafe.Pointer) {
	if h.phase == ordered {
		of(h, at)
	}
}

// inUndoing: afterwards, the release that undoes a vote matters while answers are to come. They are on the wire,
// which is hashed first.
func inUndoing(h *hasher, of hashing, at unsafe.Pointer) {
	switch p := *(*unsafe.Pointer)(at); {
	case h.phase == undoing, p != nil && slices.Contains(h.known, p):
		of(h, at)
	default:
		h.number(0)
	}
}

// partly are fields that matter at times only. All of a contest are set anew when it goes to the phase in
// which they are looked at.
var partly = map[reflect.Type]map[string]func(h *hasher, of hashing, at unsafe.Pointer){
	contestType: {
		"claim": inVote,
		"undo":  inUndoing,
		"vote": func(h *hasher, of hashing, at unsafe.Pointer) {
			undo := *(*unsafe.Pointer)(unsafe.Add(at, undoAt-voteAt))
			if h.phase == voting || h.phase == undoing || undo != nil && slices.Contains(h.known, undo) {
				of(h, at)
			}
		},
		"lost": func(h *hasher, of hashing, at unsafe.Pointer) { // its Kind is read in any phase
			if f := *(**core.Failure)(at); h.phase == undoing || f == nil {
				of(h, at)
			} else {
				h.number(uint64(f.Kind))
			}
		},
	},
	placeType:   {"node": inOrder, "asked": inOrder},
	lookoutType: {"pause": fromNow, "asked": inOrder, "expires": inOrder, "second": inOrder},
	reflect.TypeFor[core.Ballot](): {"answers": func(h *hasher, of hashing, at unsafe.Pointer) {
		b := (*core.Ballot)(unsafe.Add(at, -int(answersAt)))
		h.isBrief = b != h.vote && b != h.undo
		of(h, at)
		h.isBrief = false
	}},
	reflect.TypeFor[core.Answer](): {"TTL": ifNotBrief, "Err": ifNotBrief, "Others": ifNotBrief},
	reflect.TypeFor[message](): {"reply": func(h *hasher, of hashing, at unsafe.Pointer) {
		m := (*message)(unsafe.Add(at, -int(unsafe.Offsetof(message{}.reply))))
		h.isBrief = m.ballot != nil && m.ballot.Req.Op.Releases() && m.ballot != h.undo
		of(h, at)
		h.isBrief = false
	}},
	reflect.TypeFor[protocol.Reply](): {"TTL": ifNotBrief},
	reflect.TypeFor[caller](): {"Caller": func(h *hasher, of hashing, at unsafe.Pointer) {
		if c := (*caller)(at); !c.over || c.hold != nil { // else nothing asks for it any more
			of(h, at)
		}
	}},
}

func ifNotBrief(h *hasher, of hashing, at unsafe.Pointer) {
	if !h.isBrief {
		of(h, at)
	}
}

// fromNow: it is waited for until then, so all moments that have passed are one.
func fromNow(h *hasher, of hashing, at unsafe.Pointer) {
	if *(*clock.Instant)(at) > h.now {
		of(h, at)
	}
}

var hashings sync.Map // by reflect.Type

func hashingOf(t reflect.Type) hashing {
	if known, ok := hashings.Load(t); ok {
		return known.(hashing)
	}
	h := newHashing(t)
	hashings.Store(t, h)
	return h
}

func newHashing(t reflect.Type) hashing {
	switch t.Kind() {
	case reflect.Pointer:
		return hashPointer(t)
	case reflect.Slice:
		return hashSlice(t)
	case reflect.Interface:
		return hashInterface(t)
	case reflect.Struct:
		return hashStruct(t)
	case reflect.String:
		return func(h *hasher, at unsafe.Pointer) { h.number(h.text(*(*string)(at))) }
	case reflect.Bool, reflect.Uint8:
		return func(h *hasher, at unsafe.Pointer) { h.number(uint64(*(*uint8)(at))) }
	case reflect.Int32:
		return func(h *hasher, at unsafe.Pointer) { h.number(uint64(*(*uint32)(at))) }
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		if t == reflect.TypeFor[clock.Instant]() {
			return hashInstant
		}
		return func(h *hasher, at unsafe.Pointer) { h.number(*(*uint64)(at)) }
	case reflect.Func:
		return func(*hasher, unsafe.Pointer) {}
	default:
		panic(fmt.Sprint("no hashes of ", t, ", which is a ", t.Kind()))
	}
}

func hashInstant(h *hasher, at unsafe.Pointer) {
	i := *(*clock.Instant)(at)
	if i != 0 {
		i -= h.now - 1<<60
	}
	h.number(uint64(i))
}

func hashPointer(t reflect.Type) hashing {
	of := sync.OnceValue(func() hashing { return hashingOf(t.Elem()) })
	return func(h *hasher, at unsafe.Pointer) {
		p := *(*unsafe.Pointer)(at)
		if p == nil {
			h.number(0)
			return
		}
		for i, known := range h.known {
			if known == p {
				h.number(uint64(i) + 1)
				return
			}
		}
		h.known = append(h.known, p)
		h.number(uint64(len(h.known)))
		of()(h, p)
	}
}

func hashSlice(t reflect.Type) hashing {
	of, size := hashingOf(t.Elem()), t.Elem().Size()
	isSet := t.Elem() == reflect.TypeFor[core.Answer]() // in the order in which they have come, which means nothing
	return func(h *hasher, at unsafe.Pointer) {
		s := (*sliceHead)(at)
		h.number(uint64(s.len))
		if !isSet {
			for i := range uintptr(s.len) {
				of(h, unsafe.Add(s.first, i*size))
			}
			return
		}
		before, all := h.sum, uint64(0)
		for i := range uintptr(s.len) {
			h.sum = 0
			of(h, unsafe.Add(s.first, i*size))
			all += h.sum
		}
		h.sum = mixed(before, all)
	}
}

func hashInterface(t reflect.Type) hashing {
	return func(h *hasher, at unsafe.Pointer) {
		v := reflect.NewAt(t, at).Elem()
		if v.IsNil() {
			h.number(0)
			return
		}
		if h.number(h.text(v.Elem().Type().String())); t == errorType {
			h.number(h.text(v.Interface().(error).Error()))
		} else if v.Elem().Kind() == reflect.Pointer {
			hashingOf(v.Elem().Type())(h, unsafe.Add(at, unsafe.Sizeof(uintptr(0))))
		}
	}
}

func hashStruct(t reflect.Type) hashing {
	type part struct {
		offset uintptr
		do     hashing
		partly func(h *hasher, of hashing, at unsafe.Pointer)
	}
	var parts []part
	skipped := 0
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case slices.Contains(unheard[t], f.Name):
			skipped++
		case slices.Contains(sequences[t], f.Name):
			skipped++
			parts = append(parts, part{f.Offset, hashSequence, nil})
		default:
			if partly[t][f.Name] != nil {
				skipped++
			}
			parts = append(parts, part{f.Offset, hashingOf(f.Type), partly[t][f.Name]})
		}
	}
	if skipped != len(unheard[t])+len(sequences[t])+len(partly[t]) {
		panic(t.String() + " lacks a field that is named above")
	}
	return func(h *hasher, at unsafe.Pointer) {
		for i := range parts {
			if p := &parts[i]; p.partly != nil {
				p.partly(h, p.do, unsafe.Add(at, p.offset))
			} else {
				p.do(h, unsafe.Add(at, p.offset))
			}
		}
	}
}

// hashSequence numbers what it comes by. In the end order tells which is less than which.
func hashSequence(h *hasher, at unsafe.Pointer) {
	n := *(*int64)(at)
	i := slices.Index(h.seqs, n)
	if i < 0 {
		i = len(h.seqs)
		h.seqs = append(h.seqs, n)
	}
	h.number(uint64(i))
}

// text is the hash of a text. A value, also at the end of a key, counts by its number.
func (h *hasher) text(s string) uint64 {
	stem, value := stemOf(s)
	sum := uint64(len(stem))
	for i := range len(stem) {
		sum = sum*0x100000001B3 + uint64(stem[i])
	}
	if value == "" {
		return sum
	}
	return mixed(sum, h.names.number(value))
}

func (n *names) number(value string) uint64 {
	i := slices.Index(*n, value)
	if i < 0 {
		i = len(*n)
		*n = append(*n, value)
	}
	return uint64(i)
}

// stemOf cuts off the value that ends a text: p, the index of its process, v and a number. Where there is
// none, value is empty.
func stemOf(s string) (stem, value string) {
	v := strings.LastIndexByte(s, 'v')
	if v < 2 || v == len(s)-1 || s[v-2] != 'p' || s[v-1] < '0' || s[v-1] > '9' || s[v+1] < '0' || s[v+1] > '9' {
		return s, ""
	}
	return s[:v-2], s[v-2:]
}

// order adds how the numbers and the values that were come by are ordered.
func (h *hasher) order() {
	for i := range h.seqs {
		for j := range i {
			if h.seqs[j] < h.seqs[i] {
				h.sum++
			}
			h.sum = bits.RotateLeft64(h.sum, 1)
		}
	}
	for i := range h.names {
		for j := range i {
			if h.names[j] < h.names[i] {
				h.sum++
			}
			h.sum = bits.RotateLeft64(h.sum, 1)
		}
	}
	h.number(1)
}

// A print is a hash of a process or a node at a moment.
type print struct {
	sum   uint64
	at    time.Duration // plus one; zero: there is none
	names names
}

// learn notes what decides which parts of a key matter.
func (h *hasher) learn(k *core.Key) {
	h.phase = phaseOf(k)
	if c := *(*unsafe.Pointer)(unsafe.Add(unsafe.Pointer(k), contestAt)); h.phase == voting || h.phase == undoing {
		h.vote = *(**core.Ballot)(unsafe.Add(c, voteAt))
		h.undo = *(**core.Ballot)(unsafe.Add(c, undoAt))
	}
}

// printOf returns the hash of a process.
func (p *process) printOf(now time.Duration) *print {
	if p.print.at == now+1 {
		return &p.print
	}
	h := &hasher{now: p.local(now), known: make([]unsafe.Pointer, 0, 64)}
	h.learn(p.key)
	hashingOf(reflect.TypeFor[[]*message]())(h, unsafe.Pointer(&p.wire))
	hashingOf(reflect.TypeFor[process]())(h, unsafe.Pointer(p))
	for _, c := range p.callers {
		if c.hold != nil {
			until := p.proof(c.hold.Claim.Value)
			hashInstant(h, unsafe.Pointer(&until))
		}
		if c.Try && !c.over && p.voted < c.came { // see refuse
			h.number(1)
		}
	}
	h.order()
	p.print = print{h.sum, now + 1, h.names}
	return &p.print
}

// hash is that of all but the path.
func (s *search) hash() uint64 {
	h := hasher{sum: uint64(s.now % s.phase)}
	hashingOf(reflect.TypeFor[budget]())(&h, unsafe.Pointer(&s.budget))
	h.number(uint64(s.token))
	for _, p := range s.processes {
		h.number(p.printOf(s.now).sum)
	}
	for _, node := range s.nodes {
		h.number(node.Print(s.now, s.textOf))
	}
	return h.sum
}

// textOf is the hash of a text that a node has. A value counts by the number that its process has given it.
func (s *search) textOf(text string) uint64 {
	h := hasher{}
	stem, value := stemOf(text)
	if value == "" {
		return h.text(text)
	}
	sum := h.text(stem)
	of := int(value[1] - '0')
	if i := slices.Index(s.processes[of].print.names, value); i >= 0 {
		return mixed(sum, uint64(of)<<32|uint64(i))
	}
	for i := range len(value) {
		sum = mixed(sum, uint64(value[i]))
	}
	return sum
}
