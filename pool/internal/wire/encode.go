package wire

import (
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A Deletion is a server's own command that deletes a key if it holds a value. The release of a lock
// that was held until now is sent like this to a server that has one: an acquisition and its release then
// cost the server half to two thirds of what they cost with the script.
//
// The answer 1 is final: the key is deleted, which is all that the script would have done. After any
// other answer the script is sent, and its answer is the reply. It tells a client that holds nothing
// whose the key is and for how long, keeps a late acquisition with a token out, and is what remains
// where the command is not permitted.
//
// A release that may well be refused, as that of a try which failed or of a lock that was lost, is the
// script at once, which saves a round trip. Every extension is a script, too, because SET with IFEQ and
// PX would shorten a life that is longer, and the server would give no more hints for the key.
//
// After SCRIPT FLUSH an extension may come behind a deletion that was submitted after it. It finds no
// key then, and makes none.
type Deletion struct {
	name   string
	head   Packet // the words before the key
	encode func(p Packet, r *protocol.Request) Packet
}

var deletions = [...]*Deletion{
	{"DELEX", Begin(4, "DELEX"), func(p Packet, r *protocol.Request) Packet { // Redis 8.4
		return p.Text(r.Key).Text("IFEQ").Text(r.Value)
	}},
	{"DELIFEQ", Begin(3, "DELIFEQ"), encodeRelease}, // Valkey 9
}

// Abilities are what a server has beyond the commands that locks need.
type Abilities struct {
	Deletion *Deletion // nil: none
	Plain    bool      // it accepts tokens by plain commands: see Plain
}

// Probes are commands that a server which knows them refuses without arguments, for their number,
// before it asks its ACL. So the answers need no right and no key, and do not rest on a version, which a
// server may tell to please old clients. PEXPIRE with conditions came with EXPIRETIME in Redis 7.0.
var Probes = []string{"EXPIRETIME", deletions[0].name, deletions[1].name}

// Refused takes a server's refusal of a probe.
func (a *Abilities) Refused(probe string, said redis.Error) {
	if !strings.Contains(string(said), "wrong number of arguments") {
		return
	}
	if probe == Probes[0] {
		a.Plain = true
	}
	for _, d := range deletions {
		if d.name == probe && a.Deletion == nil {
			a.Deletion = d
		}
	}
}

// Form returns the form in which a request is to be sent to the server.
func (a Abilities) Form(r *protocol.Request) Form {
	if r.Op == protocol.OpAcquireFenced && r.Judged && a.Plain {
		return Form{Plain: true}
	}
	if r.Held && commands[r.Op].deletesKey {
		return Form{Deletion: a.Deletion}
	}
	return Form{}
}

// Without returns the abilities but those that the server lacks.
func (a Abilities) Without(lacks Abilities) Abilities {
	if a.Deletion == lacks.Deletion {
		a.Deletion = nil
	}
	a.Plain = a.Plain && !lacks.Plain
	return a
}

// A Form is one of the ways to send a request. The zero Form is what the table of commands says.
type Form struct {
	Deletion *Deletion // by which it is a release
	Plain    bool      // it is an acquisition by plain commands
	raises   bool      // it is what follows those: an OpRaise
}

// op returns the operation whose row of the table a request in this form is.
func (f Form) op(r *protocol.Request) protocol.Op {
	if f.raises {
		return protocol.OpRaise
	}
	return r.Op
}

// An Encoded request is as it is sent. The first node to see a request leaves it in the request's Memo
// for the others, and for later submissions. So it holds only what is the same for all submissions; what
// differs is in the Call.
type Encoded struct {
	packet Packet
	Form
	next       *Encoded // the same request in another form
	withSource bool     // it carries its script's source: see inFull
	Again      bool     // it is sent again, and is this call's alone
	Each       []Call   // what it stands for, of a merged call: see Merger
}

// unencoded stands for the requests that are encoded when they are sent: extensions, looks, and releases
// of held locks. Under load a batch merges most of them, and packets of their own would be thrown away.
// It is shared and must not be changed.
var unencoded = &Encoded{}

// Command encodes a command of the connection's own.
func Command(p Packet) *Encoded { return &Encoded{packet: p} }

// Encode returns the request in the form f.
func Encode(r *protocol.Request, f Form) *Encoded {
	if f == (Form{}) && mayMerge(r) {
		return unencoded
	}
	memo, _ := r.Memo.(*Encoded)
	for e := memo; e != nil; e = e.next {
		if e.Form == f {
			return e
		}
	}
	e := newEncoded(r, f)
	e.next = memo
	r.Memo = e
	return e
}

// newEncoded is Encode for a goroutine that must leave the request's Memo alone.
func newEncoded(r *protocol.Request, f Form) *Encoded {
	if f.Plain {
		e := encodePlain(r)
		e.Form = f
		return e
	}
	e := &struct { // a packet of common size is part of the allocation
		Encoded
		memory [176]byte
	}{Encoded: Encoded{Form: f}}
	e.packet = Packet(e.memory[:0]).appendRequest(r, f)
	return &e.Encoded
}

// again returns the request as a call that is sent again has it.
func again(r *protocol.Request, f Form) *Encoded {
	e := newEncoded(r, f)
	e.Again = true
	return e
}

// appendRequest appends a request in the form f, which is not plain.
func (p Packet) appendRequest(r *protocol.Request, f Form) Packet {
	cmd := &commands[f.op(r)]
	head, words := cmd.head, cmd.encode
	if cmd.script != nil {
		head = cmd.script.head
	}
	if d := f.Deletion; d != nil {
		head, words = d.head, d.encode
	}
	return words(append(p, head...), r)
}

// Append appends a call as it is sent.
func (p Packet) Append(k *Call) Packet {
	if k.Encoded == unencoded {
		return p.appendRequest(k.Request, Form{})
	}
	return append(p, k.Encoded.packet...)
}

// inFull returns the request with its script's source, for a server that has lost the script. Such
// a server answers NOSCRIPT, which means that nothing was run.
func (e *Encoded) inFull(op protocol.Op) *Encoded {
	words, _ := e.packet.Words()
	words[0], words[1] = "EVAL", commands[op].script.source
	return &Encoded{Form: e.Form, packet: Begin(len(words), words...), withSource: true}
}

// WithSources gives the requests of a batch that cannot be sent again their scripts' sources, for a
// server that did not let its scripts be loaded.
func WithSources(batch []Call) {
	for i, k := range batch {
		if k.Request != nil && commands[k.Request.Op].makesKey && k.Encoded.Form == (Form{}) {
			batch[i].Encoded = k.Encoded.inFull(k.Request.Op)
		}
	}
}
