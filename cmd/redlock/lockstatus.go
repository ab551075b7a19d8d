package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
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
	State   string     `json:"state"`
	Votes   int        `json:"votes"` // nodes that hold the value
	content            // that most nodes hold
	Owner   string     `json:"owner,omitempty"`  // as the value tells, if it does
	Since   *time.Time `json:"since,omitempty"`  // by the holder's clock
	TTL     *int64     `json:"ttl_ms,omitempty"` // -1: for ever
}

// A content is what a lock's key holds: the value of its holder, or what stands for readers.
type content struct {
	Value   string `json:"value,omitempty"`
	Bytes   []byte `json:"value_base64,omitempty"`
	Readers bool   `json:"readers,omitempty"`
}

// A nodeKey is what one node holds for a name.
type nodeKey struct {
	Node string `json:"node"`
	Held bool   `json:"held"` // there is a key
	content
	TTL   *int64 `json:"ttl_ms,omitempty"`
	Error string `json:"error,omitempty"`
}

func contentOf(value string) content {
	if value == protocol.ReadersValue {
		return content{Readers: true}
	}
	return content{Value: value, Bytes: bytesOf(value)}
}

// statusOf returns the state of a lock, and of each of its readers.
func statusOf(h *inspect.Holdings, l *inspect.Lock) lockStatus {
	s := lockStatus{Name: l.Name, NameBytes: bytesOf(l.Name), claim: claimOf(l.On)}
	if l.Several {
		s.Permit = &l.Permit
	}
	for _, value := range inspect.ReadersOf(l.On) {
		s.ReadBy = append(s.ReadBy, claimOf(inspect.AsReader(l.On, value)))
	}
	for i, c := range l.On {
		k := nodeKey{Node: h.Servers[i].Name}
		switch {
		case c.Err != nil:
			k.Error = plain.Harmless(c.Err.Error())
		case c.TTL != 0:
			k.Held, k.TTL, k.content = true, millis(c.TTL), contentOf(c.Value)
		}
		s.Nodes = append(s.Nodes, k)
	}
	return s
}

func claimOf(on []inspect.Contents) claim {
	j := inspect.Judge(on)
	c := claim{State: j.State, Votes: j.Votes, TTL: millis(j.Left)}
	if j.Votes > 0 {
		c.content = contentOf(j.Value)
		if by := redlock.HolderOf(j.Value); by.Owner != "" {
			c.Owner, c.Since = by.Owner, &by.Since
		}
	}
	return c
}

// millis returns a TTL in milliseconds, if there is one, rounded up, because a key with less than one is
// still there.
func millis(ttl time.Duration) *int64 {
	switch ttl {
	case 0:
		return nil
	case protocol.NoTTL:
		return new(int64(-1))
	}
	return new(int64((ttl + time.Millisecond - 1) / time.Millisecond))
}

// bytesOf returns s where JSON cannot hold it as text, else nothing.
func bytesOf(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// allHeld returns the answer to -q: whether each name is held, or each of its permits where so many
// are asked for. If one is not held that is certain, even if another's state is not known.
func (st *status) allHeld(permits int) error {
	const free, unknown, held = 0, 1, 2
	states := map[string]int{}
	for _, l := range st.Locks {
		of, state := plain.Word(l.Name), free
		switch {
		case l.Votes >= len(l.Nodes)/2+1:
			state = held
		case l.State == inspect.Unknown:
			state = unknown
		}
		if permits > 1 {
			of = l.title()
		}
		if permits == 1 || *l.Permit < permits {
			states[of] = max(states[of], state)
		}
	}
	switch slices.Min(slices.Collect(maps.Values(states))) {
	case free:
		return &exitError{code: exitFailed}
	case unknown:
		return &exitError{code: exitNoQuorum}
	}
	return nil
}

// text returns the status for people: a line for each lock, and, if names were asked for, one for
// each reader and each node.
func (st *status) text(named bool) string {
	var rows [][]string
	row := func(group string, cells ...string) {
		if st.Groups != nil {
			cells = slices.Insert(cells, 1, group)
		}
		rows = append(rows, cells)
	}
	claimed := func(group, title string, c claim, by string, nodes int) {
		votes, owner := "-", "-"
		if c.Votes > 0 {
			votes = fmt.Sprintf("%d of %d", c.Votes, nodes)
		}
		if c.Owner != "" {
			owner = c.Owner + " since " + c.Since.Local().Format(time.DateTime)
		}
		row(group, title, c.State, votes, ttlText(c.TTL), by, owner)
	}
	if len(st.Locks) > 0 {
		row("GROUP", "LOCK", "STATE", "VOTES", "TTL", "VALUE", "OWNER")
	}
	for _, l := range st.Locks {
		claimed(plain.Word(l.Group), l.title(), l.claim, l.holder(), len(l.Nodes))
		if !named {
			continue
		}
		for _, r := range l.ReadBy {
			claimed("", "  reader", r, r.shown(), len(l.Nodes))
		}
		for _, n := range l.Nodes {
			value := "-"
			if n.Held {
				value = n.shown()
			}
			row("", "  "+plain.Word(n.Node), n.state(), "", ttlText(n.TTL), value, "")
		}
	}
	return plain.Table(rows) + strings.Join(st.notes(named), "")
}

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
		return plain.Word(l.Name)
	}
	return permitTitle(l.Name, *l.Permit)
}

func permitTitle(name string, permit int) string {
	return fmt.Sprintf("%s, permit %d", plain.Word(name), permit)
}

func (k nodeKey) state() string {
	switch {
	case k.noLock():
		return "no lock"
	case k.Error != "":
		return "silent"
	case !k.Held:
		return inspect.Free
	case k.stuck():
		return inspect.Stuck
	}
	return "holds"
}

func (k nodeKey) stuck() bool { return k.Held && *k.TTL < 0 }

func (k nodeKey) noLock() bool { return strings.Contains(k.Error, protocol.ErrWrongType.Error()) }

// notes returns what the table does not say.
func (st *status) notes(named bool) (notes []string) {
	note := func(format string, args ...any) {
		notes = append(notes, plain.Wrap(fmt.Sprintf(format, args...), 0)+"\n")
	}
	release := func(l lockStatus, flags ...string) {
		notes = append(notes, "  "+plain.Advice("release", l.Name, flags...)+"\n")
	}
	stuck := func(l lockStatus, flags ...string) {
		note("%s is stuck: its key has no TTL and never expires. If no process holds it, free it:", l.title())
		release(l, flags...)
	}
	if len(st.Locks) == 0 && st.Answered > 0 {
		note("no locks")
	}
	odd, cut := false, false
	for _, l := range st.Locks {
		cut = cut || strings.HasSuffix(l.shown(), "…")
		odd = odd || l.State == inspect.Partial || l.State == inspect.Split || l.State == inspect.Unknown
		if l.State == inspect.Stuck && l.Permit == nil {
			stuck(l, "--force")
		}
		told := map[string]bool{}
		for _, n := range l.Nodes {
			cut = cut || strings.HasSuffix(n.shown(), "…")
			switch {
			case n.noLock():
				note("%s: %s: %s", plain.Word(l.Name), plain.Word(n.Node), n.Error)
			case !n.stuck() || l.State == inspect.Stuck && l.Permit == nil || told[n.Value]:
			case n.Readers:
				note("%s: %s has readers without a TTL. If no process reads, delete the key there", l.title(), plain.Word(n.Node))
			case l.State == inspect.Stuck: // a permit, which is freed without the others
				told[n.Value] = true
				stuck(l, "--value", n.Value)
			case n.Value != l.Value:
				note("%s: %s holds another value, which has no TTL and never expires. Free it there:", l.title(), plain.Word(n.Node))
				release(l, "--value", n.Value)
			}
		}
	}
	if !named {
		if odd {
			note("To see what each server holds: redlock status NAME")
		}
		if st.CutOff {
			note("There are more keys than --limit, so locks may be missing: pass their names, a --prefix, or a higher --limit.")
		}
		if len(st.Locks) > 0 {
			note("On servers that others use as well, any key with a string looks like a lock.")
		}
	}
	if cut {
		note("A value that ends in … is cut; --json shows it whole.")
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

// The values that package redlock gives its locks begin with 40 random hexadecimal digits, behind
// which a space and a label may stand. No two locks share the first of those digits, so they are
// enough to tell people which lock is meant. Values of other clients may begin alike, from one
// lock to the next: a host's name and a number, for instance. They are shown, and asked for, whole.
var (
	ofRedlock   = regexp.MustCompile(`^[0-9a-f]{40}( |$)`)
	isTooShort  = regexp.MustCompile(`^[0-9a-f]{1,7}$`)
	isBeginning = regexp.MustCompile(`^[0-9a-f]{8,40}$`) // with 8, two locks of one name begin alike once in 4 billion
)

const (
	leastDigits = 8
	shownDigits = 12
	// shownRunes is how much of other values the tables show.
	shownRunes = 64
)

// valueShown returns as much of a value as "release --value" wants, as a word of a table. Of a very
// long one it is the beginning, which ends in "…".
func valueShown(value string) string {
	if ofRedlock.MatchString(value) {
		return value[:shownDigits]
	}
	shown := []rune(plain.Word(value))
	if len(shown) > shownRunes {
		return string(shown[:shownRunes-1]) + "…"
	}
	return string(shown)
}

// begins reports whether a value of package redlock begins with the digits.
func begins(value, digits string) bool {
	return ofRedlock.MatchString(value) && strings.HasPrefix(value, digits)
}
