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
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

func newReset() *cobra.Command {
	r := &resetCommand{}
	c := &cobra.Command{
		Use:   "reset",
		Short: "Reset the memory guard: all servers vote at once",
		Long: `Gives each server a new record, which says that it has forgotten nothing and belongs to a set of
as many servers as are named, or to the groups that are named. All servers then vote at once. Use
it when "redlock doctor" advises it: when the number of servers or the groups change, when a record
is damaged or was written by another version, or for new servers, to skip their
quarantine.

A server that has forgotten a lock then votes for the next client that wants it, and two hold it
at once. So stop all clients first, or be sure that no such lock is held. The command shows the
records and the locks that are held, and asks. With --yes it must be able to list the locks
(+scan in an ACL).

A record is only replaced if it still is the one that was shown. Locks stay. Locks with a
fencing token can be taken about two seconds later, and tokens keep rising.

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

// A setReset is the reset of one set of servers.
type setReset struct {
	servers *servers
	of      serverSet
	key     string // of the record
	nodes   *nodeSet
	report  *resetReport
}

// A resetReport is what was found and done on a set of servers. With --json it is printed as it
// stands here; of groups there is a list, "groups".
type resetReport struct {
	Group    string      `json:"group,omitempty"`
	Quorum   int         `json:"quorum"`
	Answered int         `json:"answered"`
	Nodes    []resetNode `json:"nodes"`
	Locks    []string    `json:"locks"`             // that any server holds
	CutOff   bool        `json:"cut_off,omitempty"` // there may be more
	Unseen   []string    `json:"unseen,omitempty"`  // servers whose locks are not known

	silent  string // the same, those together that say the same
	blind   bool   // one of them has answered with its record, and would be reset
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
	ctx, sets := c.Context(), r.servers.all()
	var resets []*setReset
	for _, set := range sets {
		nodes, err := r.servers.nodeSet(set.urls)
		if err != nil {
			return set.blame(err)
		}
		defer nodes.close()
		resets = append(resets, &setReset{servers: r.servers, of: set, key: r.servers.prefix + record.Key, nodes: nodes})
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
	if r.json { // for the person who is asked
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
		if err := each(resets, func(one *setReset) error { return one.report.seen() }); err != nil {
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
		return fmt.Sprintf("%d of %d servers have a new record, and vote\n", one.report.renewed, len(one.report.Nodes))
	})
	if err := plain.OutputEither(out, r.json, printed(resets), done); err != nil {
		return err
	}
	return each(resets, func(one *setReset) error { return one.report.verdict() })
}

// seen is an error if a server would be reset whose locks are not known.
func (report *resetReport) seen() error {
	if !report.blind {
		return nil
	}
	return fmt.Errorf("nothing was changed: --yes needs a list of the held locks, which are unknown on %s", report.silent)
}

// each does something with all sets at once, and returns the first error.
func each(resets []*setReset, do func(*setReset) error) error {
	return atOnce(len(resets), func(i int) error { return resets[i].of.blame(do(resets[i])) })
}

// textOf returns a text about each set, behind the name of its group.
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

// printed returns what --json prints.
func printed(resets []*setReset) any {
	if resets[0].of.group == "" {
		return resets[0].report
	}
	var all struct {
		Groups []*resetReport `json:"groups"`
	}
	for _, one := range resets {
		all.Groups = append(all.Groups, one.report)
	}
	return all
}

// look reads the records.
func (r *setReset) look(ctx context.Context) error {
	report := &resetReport{Group: r.of.group, Quorum: r.of.quorum(), Nodes: make([]resetNode, len(r.of.urls)), Locks: []string{}}
	r.report = report
	for i, reply := range r.admit(ctx, func(int) *protocol.Admission { return &protocol.Admission{} }) {
		n := &report.Nodes[i]
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
		report.Answered++
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
				one.report.Locks = append(one.report.Locks, l.title())
			}
		}
		for _, n := range st.Nodes {
			if n.Group != one.of.group {
				continue
			}
			of.Nodes = append(of.Nodes, n)
			if n.Error != "" {
				one.report.Unseen = append(one.report.Unseen, plain.Word(n.Node)+": "+n.Error)
				isIt := func(of resetNode) bool { return of.Node == n.Node && of.Error == "" }
				one.report.blind = one.report.blind || slices.ContainsFunc(one.report.Nodes, isIt)
			}
		}
		one.report.CutOff, one.report.silent = of.CutOff, of.silent()
	}
	return nil
}

// feasible returns why these servers cannot be reset, or nil.
func feasible(resets []*setReset) error {
	if err := each(resets, func(one *setReset) error { return one.report.haveQuorum() }); err != nil {
		return err
	}
	before := map[string]string{}
	for _, one := range resets {
		for _, n := range one.report.Nodes {
			if other, twice := before[n.run]; twice && n.run != "" && n.run != record.Unknown {
				return fmt.Errorf("%s is the same server as %s: it must not vote twice; nothing was changed", plain.Word(n.Node), plain.Word(other))
			}
			before[n.run] = n.Node
		}
	}
	return nil
}

func (report *resetReport) haveQuorum() error {
	if report.Answered < report.Quorum {
		return &exitError{code: exitNoQuorum, err: fmt.Errorf("no quorum: %d of %d servers answered, and %d are needed; nothing was changed%s",
			report.Answered, len(report.Nodes), report.Quorum, report.failures())}
	}
	return nil
}

func (report *resetReport) failures() string {
	return because("", len(report.Nodes), func(i int) (node, why string) { return report.Nodes[i].Node, report.Nodes[i].Error })
}

const resetQuestion = "All servers then vote at once, although they may have forgotten locks: two can hold one\n" +
	"lock. Have all clients been stopped, or is no such lock held? Type yes to reset: "

// off returns by how much the clock of each server is ahead of the lower median. The clocks were read at
// about the same time. If that was not so, clients find that the clocks differ, and write new records.
func (report *resetReport) off() []time.Duration {
	var clocks []time.Duration
	for _, n := range report.Nodes {
		if n.clock > 0 {
			clocks = append(clocks, n.clock)
		}
	}
	slices.Sort(clocks)
	off := make([]time.Duration, len(report.Nodes))
	for i, n := range report.Nodes {
		if n.clock > 0 {
			off[i] = record.Off(n.clock - clocks[(len(clocks)-1)/2])
		}
	}
	return off
}

// renew replaces the records that were found.
func (r *setReset) renew(ctx context.Context) {
	report := r.report
	r.clear(ctx, report)
	off := report.off()
	generations, began := make([]string, len(report.Nodes)), time.Now()
	replies := r.admit(ctx, func(i int) *protocol.Admission {
		n := &report.Nodes[i]
		if n.Error != "" {
			return nil
		}
		fresh := record.New(n.run, len(report.Nodes))
		fresh.Basis, fresh.Off, fresh.Groups = record.Proof, off[i], r.servers.hashOf(r.of)
		generations[i] = fresh.Generation
		return &protocol.Admission{Old: n.Found, New: fresh.String(), Run: n.run, Life: record.DrawLife()}
	})
	// A client knows a server's clock to 5 ms, and to the time that an answer takes. The first votes of one
	// that starts at once must not seem to be from before the new records.
	select {
	case <-time.After(10*time.Millisecond + time.Since(began)):
	case <-ctx.Done():
	}
	for i, reply := range replies {
		n := &report.Nodes[i]
		switch {
		case n.Error != "":
		case reply.Err != nil:
			n.failed(reply.Err)
		default:
			now, err := record.Parse(reply.Epoch.Record)
			if n.Reset = err == nil && now.Generation == generations[i]; n.Reset {
				report.renewed++
			} else {
				n.failed(errChanged)
			}
		}
	}
}

var errChanged = errors.New("its record has changed in the meantime: a client is running, or the server was restarted")

// clear deletes keys that are no strings. A server with such a key reports its identity only when the
// key is gone.
func (r *setReset) clear(ctx context.Context, report *resetReport) {
	atOnce(len(report.Nodes), func(i int) error {
		if n := &report.Nodes[i]; n.NoString {
			if err := r.clearOne(ctx, i); err != nil {
				n.failed(err)
			}
		}
		return nil
	})
	replies := r.admit(ctx, func(i int) *protocol.Admission {
		if n := &report.Nodes[i]; n.NoString && n.Error == "" {
			return &protocol.Admission{}
		}
		return nil
	})
	for i, reply := range replies {
		if n := &report.Nodes[i]; reply.Err != nil {
			n.failed(reply.Err)
		} else if reply.Epoch != nil {
			n.learn(reply)
			n.Found = "" // a record that is there now is a client's
		}
	}
}

// clearScript deletes the record's key if it is no string.
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
	report := r.report
	var b strings.Builder
	rows := [][]string{{"SERVER", "NODES", "BORN", "QUARANTINE", "LONGEST TTL", "NOTE"}}
	for i := range report.Nodes {
		n := &report.Nodes[i]
		rows = append(rows, append([]string{plain.Word(n.Node)}, n.columns(cmp.Or(r.servers.maxTTL, usualTTL))...))
	}
	b.WriteString(plain.Table(rows))
	if held := len(report.Locks); held > 0 {
		names := strings.Join(report.Locks[:min(held, resetShown)], ", ")
		if held > resetShown {
			names += fmt.Sprintf(", and %d more", held-resetShown)
		}
		if report.CutOff {
			names += ", and others that were not listed"
		}
		fmt.Fprintln(&b, plain.Wrap(fmt.Sprintf("Locks that are held, %d: %s. On servers that others use as well, any key with a string looks like a lock.", held, names), 0))
	} else if report.silent == "" {
		fmt.Fprintln(&b, "No lock is held.")
	}
	if report.silent != "" {
		fmt.Fprintln(&b, plain.Wrap("The held locks are unknown on "+report.silent, 0))
	}
	return b.String()
}

// columns returns the server's record as columns. Clients that know of no other clients take
// assumed for the longest TTL.
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
	return []string{fmt.Sprint(r.Nodes), max(0, n.clock-r.Born).Round(time.Second).String() + " ago", left, ttlText(millis(longest))}
}

// verdict is an error unless every server has a new record.
func (report *resetReport) verdict() error {
	left := len(report.Nodes) - report.renewed
	if left == 0 {
		return nil
	}
	voting := "locks can be taken without the others, but one failure weighs more"
	if report.renewed < report.Quorum {
		voting = "no lock can be taken by these alone"
	}
	return &exitError{code: exitFailed, err: fmt.Errorf("NOT COMPLETE: %d of %d servers keep their old record (%s): stop all clients, make sure that these servers answer, and run redlock reset again%s",
		left, len(report.Nodes), voting, report.failures())}
}
