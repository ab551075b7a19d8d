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
// The answer 1 is final. After any other the script is sent, and its answer is the reply: it tells
// whose the key is and for how long, and keeps a late acquisition with a token out. A release that
// may well be refused is the script at once, which saves a round trip. Every extension is a script,
// too, because SET with IFEQ and PX would shorten a life that is longer, and the server would give
// no more hints.
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
}

// Probes are commands that a server which knows them refuses without arguments, for their number,
// before it asks its ACL. So the answers need no right and no key, and do not rest on a version, which a
// server may tell to please old clients.
var Probes = []string{deletions[0].name, deletions[1].name}

// Refused takes a server's refusal of a probe.
func (a *Abilities) Refused(probe string, said redis.Error) {
	if !strings.Contains(string(said), "wrong number of arguments") {
		return
	}
	for _, d := range deletions {
		if d.name == probe && a.Deletion == nil {
			a.Deletion = d
		}
	}
}

// Form returns the form in which a request is to be sent to the server.
func (a Abilities) Form(r *protocol.Request) Form {
	if r.Held && commands[r.Op].deletesKey {
		return Form{deletion: a.Deletion}
	}
	return Form{}
}

// Without returns the abilities but those that the server lacks.
func (a Abilities) Without(lacks Abilities) Abilities {
	if a.Deletion == lacks.Deletion {
		a.Deletion = nil
	}
	return a
}

// A Form is one of the ways to send a request. The zero Form is what the table of commands says.
type Form struct {
	Again    bool      // it is sent again, alone
	deletion *Deletion // by which it is a release
	inFull   bool      // it carries its script's source, for a server that has lost the script
}

// Append appends a call as it is sent.
func (p Packet) Append(k *Call) Packet {
	switch {
	case k.Own != nil:
		return append(p, k.Own.packet...)
	case k.Form.deletion != nil:
		d := k.Form.deletion
		return d.encode(append(p, d.head...), k.Request)
	}
	cmd := &commands[k.Request.Op]
	if cmd.script == nil {
		return cmd.encode(append(p, cmd.head...), k.Request)
	}
	if !k.Form.inFull {
		return cmd.encode(append(p, cmd.script.head...), k.Request)
	}
	words, _ := cmd.encode(append(Packet(nil), cmd.script.head...), k.Request).Words()
	words[0], words[1] = "EVAL", cmd.script.source
	return append(p, Begin(len(words), words...)...)
}

// WithSources gives the requests of a batch that cannot be sent again their scripts' sources, for a
// server that did not let its scripts be loaded.
func WithSources(batch []Call) {
	for i := range batch {
		if k := &batch[i]; k.Request != nil && commands[k.Request.Op].makesKey && k.Form == (Form{}) {
			k.Form.inFull = true
		}
	}
}
