package wire

import (
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A Deletion is a server's own command that deletes a key if it holds a value. If the server has
// one, it releases locks that were held until now: an acquisition and its release then cost the
// server half to two thirds of their cost with the script.
//
// The answer 1 is final. After any other answer the script is sent, and its answer is the reply,
// because it names the holder of the key and the remaining TTL. A release that is likely to be
// refused uses the script at once, which saves a round trip. Every extension is a script, too,
// because SET with IFEQ and PX would shorten a longer TTL, and would end the hints.
type Deletion struct {
	name   string
	head   Packet // words before the key
	encode func(p Packet, r *protocol.Request) Packet
}

var deletions = [...]*Deletion{
	{"DELEX", Begin(4, "DELEX"), func(p Packet, r *protocol.Request) Packet { // Redis 8.4
		return p.Text(r.Key).Text("IFEQ").Text(r.Value)
	}},
	{"DELIFEQ", Begin(3, "DELIFEQ"), encodeRelease}, // Valkey 9
}

// Abilities are commands of a server that locks can use but do not need.
type Abilities struct {
	Deletion *Deletion // nil if the server does not have one
}

// Probes are commands without arguments. A server that knows them refuses them for the number of
// arguments before it checks its ACL. So the answers require no rights and no key. They do not
// depend on a version, which a server may falsify to please old clients.
var Probes = []string{deletions[0].name, deletions[1].name}

// Refused handles the refusal of a probe.
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

// Form returns the form in which a request is sent to the server.
func (a Abilities) Form(r *protocol.Request) Form {
	if r.Held && r.Op == protocol.OpRelease {
		return Form{deletion: a.Deletion}
	}
	return Form{}
}

// Without returns the abilities except those that the server lacks.
func (a Abilities) Without(lacks Abilities) Abilities {
	if a.Deletion == lacks.Deletion {
		a.Deletion = nil
	}
	return a
}

// A Form is one of the ways to send a request. The zero Form is the way in the table of commands.
type Form struct {
	Requeued bool      // the request is sent again, without merging
	deletion *Deletion // command that replaces the script of a release
	inFull   bool      // the request contains the source of its script, for a server that lost the script
}
