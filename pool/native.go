package pool

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// The release of a lock that was held until now is sent as the server's own compare-and-delete, if
// it has one. An acquisition and its release then cost the server half to two thirds of what they
// cost with the script.
//
// The answer 1 is final: the key is deleted, which is all that the script would have done. After
// any other answer the script is sent, and its answer is the reply. It tells a client that holds
// nothing whose the key is and for how long, keeps a late acquisition with a token out, and is what
// remains where the command is not permitted.
//
// A release that may well be refused, as that of a try which failed or of a lock that was lost, is
// the script at once, which saves a round trip. Every extension is a script, too, because SET with
// IFEQ and PX would shorten a life that is longer, and the server would give no more hints for the
// key (see extendScript).
//
// After SCRIPT FLUSH an extension may come behind a deletion that was submitted after it. It finds
// no key then, and makes none.

// A deletion is a server's own command that deletes a key if it holds a value.
type deletion struct {
	name   string
	head   packet // the words before the key
	encode func(p packet, r *protocol.Request) packet
}

var deletions = [...]*deletion{
	{"DELEX", begin(4, "DELEX"), func(p packet, r *protocol.Request) packet { // Redis 8.4
		return p.text(r.Key).text("IFEQ").text(r.Value)
	}},
	{"DELIFEQ", begin(3, "DELIFEQ"), encodeRelease}, // Valkey 9
}

// askDeletion returns the questions that tell which deletion a server knows. A server that knows a
// command refuses it without arguments for their number, before it asks its ACL. So the answer
// needs no right and no key, and does not rest on a version, which a server may tell to please old
// clients.
func askDeletion(s *server) (questions []question) {
	for _, d := range deletions {
		questions = append(questions, question{name: d.name, refused: func(said redis.Error) {
			if s.deletion == nil && strings.Contains(string(said), "wrong number of arguments") {
				s.deletion = d
			}
		}})
	}
	return questions
}

// deletionFor returns the deletion to be used for a request; nil: its script.
func (n *node) deletionFor(r *protocol.Request) *deletion {
	if !r.Held || !commands[r.Op].deletesKey {
		return nil
	}
	return n.deletion.Load()
}

// deleted reports whether an answer is that of a deletion which deleted the key.
func deleted(answer any, failure redis.Error) bool { return failure == "" && answer == int64(1) }

// releaseByScript sends a release again that its deletion did not settle. A deletion that the
// server does not permit, or no longer knows, is not tried again on this connection.
func (c *conn) releaseByScript(k call, failure redis.Error) {
	n, d := c.node, k.encoded.deletion
	if failure != "" {
		meaning, _ := explain(failure)
		forbidden := errors.Is(meaning, ErrPermission)
		if forbidden || errors.Is(meaning, ErrUnsupported) {
			n.deletion.CompareAndSwap(d, nil)
		}
		if forbidden {
			n.doubts.enter(fmt.Sprintf("it has %s and does not permit it, so each release costs it a script: permit %[1]s", d.name))
		}
	}
	k.encoded = newEncoded(k.request, form{})
	n.sendAgain(k)
}
