package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// A status is what is known of the locks at one moment. With --json it is printed as it stands
// here.
type status struct {
	Time     time.Time     `json:"time"`
	Quorum   int           `json:"quorum,omitempty"` // each of Groups has its own
	Answered int           `json:"answered"`         // nodes
	Nodes    []nodeStatus  `json:"nodes"`
	Groups   []groupStatus `json:"groups,omitempty"` // that were asked, if there are any
	Locks    []lockStatus  `json:"locks"`
	CutOff   bool          `json:"cut_off,omitempty"` // there may be more locks
}

// A groupStatus is one group of servers.
type groupStatus struct {
	Group    string `json:"group"`
	Quorum   int    `json:"quorum"`
	Answered int    `json:"answered"` // servers
	Servers  int    `json:"servers"`
}

type nodeStatus struct {
	Node  string `json:"node"`
	Group string `json:"group,omitempty"`
	Error string `json:"error,omitempty"` // why it did not answer
}

// A lockStatus is the state of one name. Names and values that are no text are also there as they
// are, in base64.
type lockStatus struct {
	Name      string `json:"name"`
	NameBytes []byte `json:"name_base64,omitempty"`
	Group     string `json:"group,omitempty"`  // where this is so
	Permit    *int   `json:"permit,omitempty"` // which of several it is, from 0 on
	claim
	ReadBy []claim   `json:"read_by,omitempty"` // each reader's
	Nodes  []nodeKey `json:"nodes"`
}

// A claim is what one client has of a lock.
type claim struct {
	State   string `json:"state"`
	Votes   int    `json:"votes"` // nodes that hold the value
	content        // that most nodes hold
	owner          // of its Value
	TTL     *int64 `json:"ttl_ms,omitempty"` // -1: for ever
}

func (c claim) votes(nodes int) string {
	if c.Votes == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", c.Votes, nodes)
}

// A content is what a lock's key holds: the value of its holder, or what stands for readers.
type content struct {
	Value   string `json:"value,omitempty"`
	Bytes   []byte `json:"value_base64,omitempty"`
	Readers bool   `json:"readers,omitempty"`
}

func contentOf(value string) content {
	if value == protocol.ReadersValue {
		return content{Readers: true}
	}
	return content{Value: value, Bytes: bytesOf(value)}
}

// An owner is what a value tells of who holds the lock, if it tells anything.
type owner struct {
	Owner string     `json:"owner,omitempty"`
	Since *time.Time `json:"since,omitempty"` // by the holder's clock
}

// shown returns it as a cell of a table.
func (o owner) ownerText() string {
	if o.Owner == "" {
		return "-"
	}
	return o.Owner + " since " + o.Since.Local().Format(time.DateTime)
}

func ownerOf(value string) (o owner) {
	if h := redlock.HolderOf(value); h.Owner != "" {
		o.Owner, o.Since = h.Owner, &h.Since
	}
	return o
}

// A nodeKey is what one node holds for a name.
type nodeKey struct {
	Node string `json:"node"`
	Held bool   `json:"held"` // there is a key
	content
	TTL   *int64 `json:"ttl_ms,omitempty"`
	Error string `json:"error,omitempty"`
}

// The states of a lock.
const (
	stateHeld    = "held"
	stateFree    = "free"
	statePartial = "partial"
	stateSplit   = "split"
	stateStuck   = "stuck"
	stateUnknown = "unknown"
)

// nodeError returns a node's error as text, without the node's name.
func nodeError(err error) string {
	var e *redlock.NodeError
	if errors.As(err, &e) {
		return harmless(e.Err.Error())
	}
	return harmless(err.Error())
}

// judge returns the state that the nodes' answers amount to.
func judge(in *redlock.Inspection) lockStatus {
	l := lockStatus{Name: in.Name, NameBytes: bytesOf(in.Name)}
	holders, silent, stuck := map[string]int{}, 0, false
	most := "" // the value that most nodes hold
	for _, n := range in.Nodes {
		k := nodeKey{Node: n.Node}
		switch {
		case n.Err != nil:
			k.Error = nodeError(n.Err)
			silent++
		case n.TTL != 0:
			k.Held, k.TTL, k.content = true, millis(n.TTL), contentOf(n.Value)
			holders[n.Value]++
			if c := holders[n.Value]; c > holders[most] || len(holders) == 1 {
				most = n.Value
			}
			stuck = stuck || n.Stuck
		}
		l.Nodes = append(l.Nodes, k)
	}
	q := len(in.Nodes)/2 + 1
	_, left, held := in.Holder()
	if len(holders) > 0 {
		l.Votes, l.content, l.owner = holders[most], contentOf(most), ownerOf(most)
	}
	switch {
	case held && left != protocol.NoTTL:
		l.State, l.TTL = stateHeld, millis(left)
	case stuck:
		l.State, l.TTL = stateStuck, millis(protocol.NoTTL)
	case l.Votes+silent >= q:
		l.State = stateUnknown
	case len(holders) == 0:
		l.State = stateFree
	case len(holders) == 1:
		l.State = statePartial
	default:
		l.State = stateSplit
	}
	return l
}

// readBy sets the readers of a lock, by what each node tells of them.
func (l *lockStatus) readBy(in *redlock.Inspection, readers []map[string]time.Duration) {
	readers = slices.Clone(readers)
	for i, n := range in.Nodes {
		if n.Value != protocol.ReadersValue { // what is left of readers there is void
			readers[i] = nil
		}
	}
	for _, value := range valuesOf(readers) {
		of := &redlock.Inspection{Name: in.Name}
		for i, n := range in.Nodes {
			if n.Err == nil {
				n.Value, n.TTL, n.Stuck = value, readers[i][value], false
			}
			of.Nodes = append(of.Nodes, n)
		}
		l.ReadBy = append(l.ReadBy, judge(of).claim)
	}
}

// millis returns a TTL in milliseconds, rounded up, because a key with less than one is still there.
func millis(ttl time.Duration) *int64 {
	ms := int64(-1)
	if ttl != protocol.NoTTL {
		ms = int64((ttl + time.Millisecond - 1) / time.Millisecond)
	}
	return &ms
}

// bytesOf returns s where JSON cannot hold it as text, else nothing.
func bytesOf(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// allHeld returns the answer to -q: whether each name is held, or each of its permits where so many
// are asked for. If one is not held that is certain, even if another's state is not known. A lock that
// a change of the map moves is held in one of its groups at least.
func (st *status) allHeld(permits int) error {
	const free, unknown, held = 0, 1, 2
	states := map[string]int{}
	for _, l := range st.Locks {
		state := free
		switch {
		case l.Votes >= len(l.Nodes)/2+1:
			state = held
		case l.State == stateUnknown:
			state = unknown
		}
		of := word(l.Name)
		switch {
		case permits > 1 && *l.Permit >= permits:
			continue
		case permits > 1:
			of = l.title()
		}
		states[of] = max(states[of], state)
	}
	all := slices.Collect(maps.Values(states))
	switch {
	case slices.Contains(all, free):
		return &exitError{code: exitFailed}
	case slices.Contains(all, unknown):
		return &exitError{code: exitNoQuorum}
	}
	return nil
}

// text returns the status for people: a line for each lock, and, if names were asked for, one for
// each node.
func (st *status) text(named bool) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(group string, cells ...string) {
		if st.Groups != nil {
			cells = slices.Insert(cells, 1, group)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if len(st.Locks) > 0 {
		row("GROUP", "LOCK", "STATE", "VOTES", "TTL", "VALUE", "OWNER")
	}
	for _, l := range st.Locks {
		row(word(l.Group), l.title(), l.State, l.votes(len(l.Nodes)), ttlText(l.TTL), l.holder(), l.ownerText())
		if !named {
			continue
		}
		for _, r := range l.ReadBy {
			row("", "  reader", r.State, r.votes(len(l.Nodes)), ttlText(r.TTL), r.shown(), r.ownerText())
		}
		for _, n := range l.Nodes {
			value := "-"
			if n.Held {
				value = n.shown()
			}
			row("", "  "+word(n.Node), n.state(), "", ttlText(n.TTL), value, "")
		}
	}
	table.Flush()
	text := trailing.ReplaceAllString(b.String(), "")
	b.Reset()
	b.WriteString(text)
	for _, note := range st.notes(named) {
		b.WriteString(note + "\n")
	}
	return b.String()
}

// trailing are the spaces that columns leave at the end of lines.
var trailing = regexp.MustCompile(`(?m) +$`)

// holder returns who holds the lock as a word of a table: a value, or how many readers.
func (l lockStatus) holder() string {
	switch {
	case l.Votes == 0:
		return "-"
	case l.Readers && len(l.ReadBy) == 1:
		return "(1 reader)"
	case l.Readers && len(l.ReadBy) > 1:
		return fmt.Sprintf("(%d readers)", len(l.ReadBy))
	}
	return l.shown()
}

// title returns the lock's name, with the permit if there are several.
func (l lockStatus) title() string {
	if l.Permit == nil {
		return word(l.Name)
	}
	return permitTitle(l.Name, *l.Permit)
}

func permitTitle(name string, permit int) string {
	return fmt.Sprintf("%s, permit %d", word(name), permit)
}

// state returns one node's state, in a word.
func (k nodeKey) state() string {
	switch {
	case k.noLock():
		return "no lock"
	case k.Error != "":
		return "silent"
	case !k.Held:
		return stateFree
	case k.stuck():
		return stateStuck
	}
	return "holds"
}

func (k nodeKey) stuck() bool { return k.Held && *k.TTL < 0 }

func (k nodeKey) noLock() bool { return strings.Contains(k.Error, protocol.ErrWrongType.Error()) }

// notes returns what the table does not say.
func (st *status) notes(named bool) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, wrap(fmt.Sprintf(format, args...), 0)) }
	command := func(name, lock string, flags ...string) { notes = append(notes, "  "+advice(name, lock, flags...)) }
	if len(st.Locks) == 0 && st.Answered > 0 {
		note("no locks")
	}
	odd := false
	for _, l := range st.Locks {
		odd = odd || l.State == statePartial || l.State == stateSplit || l.State == stateUnknown
		if l.State == stateStuck && l.Permit == nil {
			note("%s is stuck: its key has no TTL and never expires. If nobody holds it, free it:", l.title())
			command("release", l.Name, "--force")
		}
		told := map[string]bool{}
		for _, n := range l.Nodes {
			switch {
			case n.noLock():
				note("%s: %s: %s", word(l.Name), word(n.Node), n.Error)
			case !n.stuck() || l.State == stateStuck && l.Permit == nil || told[n.Value]:
			case n.Readers:
				note("%s: %s has readers without a TTL. If no process reads, delete the key there", l.title(), word(n.Node))
			case l.State == stateStuck: // a permit, which is freed without the others
				told[n.Value] = true
				note("%s is stuck: its key has no TTL and never expires. If nobody holds it, free it:", l.title())
				command("release", l.Name, "--value", n.Value)
			case n.Value != l.Value:
				note("%s: %s holds another value without a TTL, for ever. Free it there:", l.title(), word(n.Node))
				command("release", l.Name, "--value", n.Value)
			}
		}
	}
	if !named {
		if odd {
			note("Which server holds what: redlock status NAME")
		}
		if st.CutOff {
			note("There are more keys than were looked at, so locks may be missing: give their names, a --prefix, or a higher --limit.")
		}
		if len(st.Locks) > 0 {
			note("On servers that others use as well, any key with a string looks like a lock.")
		}
	}
	if slices.ContainsFunc(st.Locks, lockStatus.cut) {
		note("A value that ends in … is longer; --json has it whole.")
	}
	if silent := st.silent(); silent != "" {
		note("No answer from %s", silent)
	}
	return notes
}

// silent tells which servers did not answer, and why.
func (st *status) silent() string {
	return together(len(st.Nodes), func(i int) (node, why string) { return st.Nodes[i].Node, st.Nodes[i].Error })
}

// cut reports whether text shows a beginning only of a value that release needs whole.
func (l lockStatus) cut() bool {
	return strings.HasSuffix(l.shown(), "…") ||
		slices.ContainsFunc(l.Nodes, func(k nodeKey) bool { return strings.HasSuffix(k.shown(), "…") })
}

// readersText stands in tables where a lock with one holder has its value.
const readersText = "(readers)"

// shown returns it as a word of a table.
func (c content) shown() string {
	if c.Readers {
		return readersText
	}
	return valueShown(c.Value)
}

func ttlText(ms *int64) string {
	switch {
	case ms == nil:
		return "-"
	case *ms < 0:
		return "none"
	}
	ttl := time.Duration(*ms) * time.Millisecond
	if ttl > 10*time.Second {
		ttl = ttl.Round(100 * time.Millisecond)
	}
	return ttl.String()
}
