package schedules

import (
	"fmt"
	"strings"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A versionNode is a node of a client in a schedule with clients of two versions of the library. Those of
// the later one add a field to the records that they write, which the others do not know.
type versionNode struct {
	protocol.Watchable
	client *client
	field  string // with its value; empty: the client has the earlier version
}

// laterField begins the field, in a record's text.
const laterField = " later="

// versions returns the nodes of a client, which has the later version if its number is odd.
func (c *client) versions(nodes []protocol.Node) []protocol.Node {
	field := ""
	if c.id%2 == 1 {
		field = fmt.Sprint(laterField, c.id)
	}
	for i, n := range nodes {
		nodes[i] = versionNode{n.(protocol.Watchable), c, field}
	}
	return nodes
}

// Submit implements protocol.Node.
func (n versionNode) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	if req.Op == protocol.OpAdmit && req.Admit.New != "" {
		again, admission := *req, *req.Admit
		admission.New = n.written(admission.Old, admission.New)
		again.Admit = &admission
		req = &again
	}
	return n.Watchable.Submit(req, slot, to)
}

// written returns the text that the client writes in place of an old one. The earlier version must keep
// the field, as long as the record is of one generation.
func (n versionNode) written(old, text string) string {
	s := n.client.schedule
	had, kept := fieldOf(old, laterField), fieldOf(text, laterField)
	isSame := fieldOf(old, " gen=") == fieldOf(text, " gen=")
	switch {
	case n.field != "":
		s.coverage.count(laterRecords)
		return strings.Replace(text, kept, "", 1) + n.field
	case isSame && kept != had:
		s.problem("client %d has an earlier version, and wrote %q where a record had %q of a later one", n.client.id, kept, had)
	case isSame && had != "":
		s.coverage.count(keptRecords)
	}
	return text
}

// fieldOf returns the field of a record's text that begins so, with its value.
func fieldOf(text, begin string) string {
	_, rest, ok := strings.Cut(text, begin)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, " ")
	return begin + value
}
