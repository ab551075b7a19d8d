package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

func newReset() *cobra.Command {
	r := &resetCommand{}
	c := &cobra.Command{
		Use:   "reset",
		Short: "Reset the memory guard: all servers vote at once",
		Long: `Replaces the record of each server. The new record has the number of servers, or the groups, of
this command line, and states that the server has forgotten no lock. All servers then vote at
once. Use reset if "redlock doctor" advises it: after a change of the number of servers or of the
groups, for a damaged record or a record of another version, or to skip the quarantine of new
servers.

A server that has forgotten a lock then votes for the next client, and two clients hold the lock.
So stop all clients first, or make sure that no lock was forgotten. The command shows the records
and the held locks, and asks for confirmation. With --yes it needs the right to list the locks
(+scan in an ACL).

A record is replaced only if it has not changed since it was shown. Locks stay. Locks with a
fencing token can be acquired about two seconds later, and tokens keep rising.

Exit codes:
  0      every server has a new record
  1      not confirmed; or a server did not get one, because it did not answer, or
         because a client changed its record in the meantime
  69     no quorum of servers answered, in some group, and nothing was changed
` + wrongCodes,
		Example: `  redlock reset
  redlock reset --yes      # without a terminal, as for new servers`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return r.run(c) },
	}
	r.servers = serverFlags(c)
	r.servers.explainTimeout()
	f := c.Flags()
	f.BoolVar(&r.yes, "yes", false, "do not ask")
	f.BoolVar(&r.json, "json", false, "print one JSON document; without --yes the text and the question go to stderr")
	return c
}

// A resetCommand is one run of "redlock reset".
type resetCommand struct {
	servers *servers
	yes     bool
	json    bool
}

// A setReset is the reset of one set of servers. With --json it is printed with these fields; the
// resets of groups are in a list, "groups".
type setReset struct {
	Group    string      `json:"group,omitempty"`
	Quorum   int         `json:"quorum"`
	Answered int         `json:"answered"`
	Nodes    []resetNode `json:"nodes"`
	Locks    []string    `json:"locks"`             // on any server
	CutOff   bool        `json:"cut_off,omitempty"` // there may be more
	Unseen   []string    `json:"unseen,omitempty"`  // servers whose locks are unknown

	servers *servers
	of      serverSet
	key     string // of the record
	nodes   *nodeSet
	silent  string // like Unseen, grouped by error
	blind   bool   // one of Unseen has answered with its record, and would be reset
	renewed int    // servers with a new record
}

// A resetNode is one server.
type resetNode struct {
	Node     string `json:"node"`
	Found    string `json:"found,omitempty"` // its record
	NoString bool   `json:"no_string,omitempty"`
	Reset    bool   `json:"reset"`
	Error    string `json:"error,omitempty"`

	run   string
	clock time.Duration
}

func (r *resetCommand) run(c *cobra.Command) error {
	ctx, sets := c.Context(), r.servers.targets.all()
	var resets []*setReset
	for _, set := range sets {
		nodes, err := r.servers.nodeSet(set.urls)
		if err != nil {
			return set.blame(err)
		}
		defer nodes.close()
		resets = append(resets, &setReset{servers: r.servers, of: set, key: r.servers.locking.prefix + record.Key, nodes: nodes})
	}
	err := each(resets, func(one *setReset) error { return one.look(ctx) })
	if err == nil {
		err = r.locks(ctx, resets)
	}
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	shown := out
	if r.json { // stdout has only the document; a person must see the locks
		shown = c.ErrOrStderr()
	}
	if !r.json || !r.yes {
		if err := plain.Output(shown, textOf(resets, (*setReset).text)); err != nil {
			return err
		}
	}
	if err := feasible(resets); err != nil {
		return err
	}
	if r.yes {
		if err := each(resets, (*setReset).seen); err != nil {
			return err
		}
	} else {
		if err := confirm(c, resetQuestion, "yes"); err != nil {
			return err
		}
	}
	each(resets, func(one *setReset) error { one.renew(ctx); return nil })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	done := textOf(resets, func(one *setReset) string {
		return fmt.Sprintf("%d of %d servers have a new record, and vote\n", one.renewed, len(one.Nodes))
	})
	if err := plain.OutputEither(out, r.json, printed(resets), done); err != nil {
		return err
	}
	return each(resets, (*setReset).verdict)
}

// seen returns an error if the locks of a server that would be reset are unknown.
func (r *setReset) seen() error {
	if !r.blind {
		return nil
	}
	return fmt.Errorf("nothing was changed: --yes needs a list of the held locks, which are unknown on %s", r.silent)
}

// each calls do for all sets concurrently, and returns the first error.
func each(resets []*setReset, do func(*setReset) error) error {
	return atOnce(len(resets), func(i int) error { return resets[i].of.blame(do(resets[i])) })
}

// textOf returns a text about each set, after the name of its group.
func textOf(resets []*setReset, of func(*setReset) string) string {
	var b strings.Builder
	for _, one := range resets {
		if one.of.group != "" {
			fmt.Fprintf(&b, "Group %s\n", plain.Word(one.of.group))
		}
		b.WriteString(of(one))
	}
	return b.String()
}

// printed returns the document that --json prints.
func printed(resets []*setReset) any {
	if resets[0].of.group == "" {
		return resets[0]
	}
	var all struct {
		Groups []*setReset `json:"groups"`
	}
	all.Groups = resets
	return all
}

// look reads the records.
func (r *setReset) look(ctx context.Context) error {
	r.Group, r.Quorum, r.Nodes, r.Locks = r.of.group, r.of.quorum(), make([]resetNode, len(r.of.urls)), []string{}
	for i, reply := range r.admit(ctx, func(int) *protocol.Admission { return &protocol.Admission{} }) {
		n := &r.Nodes[i]
		n.Node = r.nodes.names[i]
		switch {
		case errors.Is(reply.Err, protocol.ErrWrongType):
			n.NoString = true
		case reply.Err != nil:
			n.failed(reply.Err)
			continue
		default:
			n.learn(reply)
		}
		r.Answered++
	}
	return ctx.Err()
}

// admit asks the nodes for their records, with the change that change returns for each.
func (r *setReset) admit(ctx context.Context, change func(node int) *protocol.Admission) []protocol.Reply {
	return r.nodes.ask(ctx, r.key, func(i int) *protocol.Request {
		if a := change(i); a != nil {
			return &protocol.Request{Op: protocol.OpAdmit, Admit: a}
		}
		return nil
	})
}

// learn takes the server's record, identity and clock from its reply.
func (n *resetNode) learn(reply protocol.Reply) {
	n.Found, n.run, n.clock = reply.Epoch.Record, cmp.Or(reply.Run, record.Unknown), reply.Epoch.Clock
}

func (n *resetNode) failed(err error) { n.Error = plain.Harmless(err.Error()) }

// locks finds the locks that the servers hold, as status does.
func (r *resetCommand) locks(ctx context.Context, resets []*setReset) error {
	st, err := (&statusCommand{servers: r.servers, limit: 1000}).look(ctx)
	if err != nil {
		return err
	}
	for _, one := range resets {
		of := &status{CutOff: st.CutOff}
		for _, l := range st.Locks {
			if l.Group == one.of.group && l.State != inspect.Free {
				one.Locks = append(one.Locks, l.Title())
			}
		}
		for _, n := range st.Nodes {
			if n.Group != one.of.group {
				continue
			}
			of.Nodes = append(of.Nodes, n)
			if n.Error != "" {
				one.Unseen = append(one.Unseen, plain.Word(n.Node)+": "+n.Error)
				isIt := func(of resetNode) bool { return of.Node == n.Node && of.Error == "" }
				one.blind = one.blind || slices.ContainsFunc(one.Nodes, isIt)
			}
		}
		one.CutOff, one.silent = of.CutOff, of.silent()
	}
	return nil
}

// feasible returns the reason these servers cannot be reset, or nil.
func feasible(resets []*setReset) error {
	if err := each(resets, (*setReset).haveQuorum); err != nil {
		return err
	}
	before := map[string]string{}
	for _, one := range resets {
		for _, n := range one.Nodes {
			if other, twice := before[n.run]; twice && n.run != "" && n.run != record.Unknown {
				return fmt.Errorf("%s is the same server as %s: it must not vote twice; nothing was changed", plain.Word(n.Node), plain.Word(other))
			}
			before[n.run] = n.Node
		}
	}
	return nil
}

func (r *setReset) haveQuorum() error {
	if r.Answered < r.Quorum {
		return &exitError{code: exitNoQuorum, err: fmt.Errorf("no quorum: %d of %d servers answered, and %d are needed; nothing was changed%s",
			r.Answered, len(r.Nodes), r.Quorum, r.failures())}
	}
	return nil
}

func (r *setReset) failures() string {
	return because("", len(r.Nodes), func(i int) (node, why string) { return r.Nodes[i].Node, r.Nodes[i].Error })
}

const resetQuestion = "All servers then vote at once, although they may have forgotten locks: two can hold one\n" +
	"lock. Have all clients been stopped, or is no such lock held? Type yes to reset: "

// off returns the lead of each server's clock over the lower median. It assumes that the clocks
// were read at about the same time. If they were not, clients notice that the clocks differ, and
// write new records.
func (r *setReset) off() []time.Duration {
	var clocks []time.Duration
	for _, n := range r.Nodes {
		if n.clock > 0 {
			clocks = append(clocks, n.clock)
		}
	}
	slices.Sort(clocks)
	off := make([]time.Duration, len(r.Nodes))
	for i, n := range r.Nodes {
		if n.clock > 0 {
			off[i] = record.Off(n.clock - clocks[(len(clocks)-1)/2])
		}
	}
	return off
}

// renew replaces the records that were found.
func (r *setReset) renew(ctx context.Context) {
	r.clear(ctx)
	off := r.off()
	generations, began := make([]string, len(r.Nodes)), time.Now()
	replies := r.admit(ctx, func(i int) *protocol.Admission {
		n := &r.Nodes[i]
		if n.Error != "" {
			return nil
		}
		fresh := record.New(n.run, len(r.Nodes))
		fresh.Basis, fresh.Off, fresh.Groups = record.Proof, off[i], r.servers.targets.hashOf(r.of)
		generations[i] = fresh.Generation
		return &protocol.Admission{Old: n.Found, New: fresh.String(), Run: n.run, Life: record.DrawLife()}
	})
	// A client knows a server's clock to within 5 ms and the response time. The first votes for a
	// client that starts at once must not seem older than the new records.
	select {
	case <-time.After(10*time.Millisecond + time.Since(began)):
	case <-ctx.Done():
	}
	for i, reply := range replies {
		n := &r.Nodes[i]
		switch {
		case n.Error != "":
		case reply.Err != nil:
			n.failed(reply.Err)
		default:
			now, err := record.Parse(reply.Epoch.Record)
			if n.Reset = err == nil && now.Generation == generations[i]; n.Reset {
				r.renewed++
			} else {
				n.failed(errChanged)
			}
		}
	}
}

var errChanged = errors.New("its record has changed in the meantime: a client is running, or the server was restarted")

// clear deletes keys other than strings. A server reports its identity only after such a key is
// gone.
func (r *setReset) clear(ctx context.Context) {
	atOnce(len(r.Nodes), func(i int) error {
		if n := &r.Nodes[i]; n.NoString {
			if err := r.clearOne(ctx, i); err != nil {
				n.failed(err)
			}
		}
		return nil
	})
	replies := r.admit(ctx, func(i int) *protocol.Admission {
		if n := &r.Nodes[i]; n.NoString && n.Error == "" {
			return &protocol.Admission{}
		}
		return nil
	})
	for i, reply := range replies {
		if n := &r.Nodes[i]; reply.Err != nil {
			n.failed(reply.Err)
		} else if reply.Epoch != nil {
			n.learn(reply)
			n.Found = "" // a new record is from a client
		}
	}
}

// clearScript deletes the record's key unless it is a string.
const clearScript = `
local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' and found.err and string.find(found.err, 'WRONGTYPE', 1, true) then
	redis.call('DEL', KEYS[1])
end
return 1`

func (r *setReset) clearOne(ctx context.Context, i int) error {
	of, err := r.servers.reader(r.of)
	if err != nil {
		return err
	}
	c, err := of.Connect(ctx, i)
	if err != nil {
		return err
	}
	defer c.Close()
	return of.Within(ctx, c, func() error {
		_, err := c.Do("EVAL", clearScript, 1, r.key)
		return err
	})
}

const resetShown = 10

func (r *setReset) text() string {
	var b strings.Builder
	rows := [][]string{{"SERVER", "NODES", "BORN", "QUARANTINE", "LONGEST TTL", "NOTE"}}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		rows = append(rows, append([]string{plain.Word(n.Node)}, n.columns(cmp.Or(r.servers.locking.maxTTL, usualTTL))...))
	}
	b.WriteString(plain.Table(rows))
	if held := len(r.Locks); held > 0 {
		names := strings.Join(r.Locks[:min(held, resetShown)], ", ")
		if held > resetShown {
			names += fmt.Sprintf(", and %d more", held-resetShown)
		}
		if r.CutOff {
			names += ", and others that were not listed"
		}
		fmt.Fprintln(&b, plain.Wrap(fmt.Sprintf("Locks that are held, %d: %s. On servers that others use as well, any key with a string looks like a lock.", held, names), 0))
	} else if r.silent == "" {
		fmt.Fprintln(&b, "No lock is held.")
	}
	if r.silent != "" {
		fmt.Fprintln(&b, plain.Wrap("The held locks are unknown on "+r.silent, 0))
	}
	return b.String()
}

// columns returns the server's record as columns. Clients without knowledge of other clients use
// assumed as the longest TTL.
func (n *resetNode) columns(assumed time.Duration) []string {
	r, err := record.Parse(n.Found)
	note := ""
	switch {
	case n.Error != "":
		note = n.Error
	case n.NoString:
		note = "its record is not a string"
	case n.Found == "":
		note = "it has no record"
	case err != nil:
		note = fmt.Sprintf("its record %v: %.40q", err, n.Found)
	case n.run != record.Unknown && !r.IsOf(n.run):
		note = "its record is of another process or data set"
	}
	if note != "" {
		return []string{"-", "-", "-", "-", note}
	}
	left, longest := "over", time.Duration(0)
	if d := r.Quarantine(n.clock, assumed); d > 0 {
		left = d.Round(time.Second).String()
	}
	for _, s := range r.Steps {
		if s.Until() >= n.clock {
			longest = max(longest, s.TTL)
		}
	}
	return []string{fmt.Sprint(r.Nodes), max(0, n.clock-r.Born).Round(time.Second).String() + " ago", left, ttlText(survey.Millis(longest))}
}

// verdict is an error unless every server has a new record.
func (r *setReset) verdict() error {
	left := len(r.Nodes) - r.renewed
	if left == 0 {
		return nil
	}
	voting := "locks can be taken without the others, but one failure weighs more"
	if r.renewed < r.Quorum {
		voting = "no lock can be taken by these alone"
	}
	return &exitError{code: exitFailed, err: fmt.Errorf("NOT COMPLETE: %d of %d servers keep their old record (%s): stop all clients, make sure that these servers answer, and run redlock reset again%s",
		left, len(r.Nodes), voting, r.failures())}
}
