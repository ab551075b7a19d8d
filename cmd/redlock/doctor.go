package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/protocol"
)

// doctor has the exit codes of Nagios plugins, for monitoring, and 69.
const (
	exitDoctorWarning = 1
	exitDoctorFatal   = 2
)

func newDoctor() *cobra.Command {
	var asJSON, all bool
	var accept []string
	var s *servers
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether the servers are fit for locks",
		Long: `Checks each server, and all of them together: whether they answer and how fast, roles, versions,
what a restart or a full memory makes them forget, clocks, quarantines, the settings of other
clients, duplicate servers, the rights of the ACL, passwords in clear. It changes nothing.
Pass the settings of the clients, above all --max-ttl.

A finding is fatal if the server has no vote now, or if locks do not exclude each other. It is a
warning if that can happen when something else goes wrong. --all and --json also show the checks
that passed. A warning about what you have decided, and will not change, is a note with --accept:
--accept transport for passwords in clear, --accept nodes for one server ($REDLOCK_ACCEPT).

Exit codes:
  0      no findings, except notes
  1      locks can be taken, but there are warnings, or servers without a vote (or
         doctor itself failed, as stderr says)
  2      no lock can be taken, in some group
  69     no quorum of servers answers, in some group
` + wrongCodes,
		Example: `  redlock doctor
  redlock doctor --json | jq '.nodes[].findings[] | select(.severity == "fatal")'`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, check := range accept {
				if !slices.Contains(doctor.Acceptable, check) {
					return wrong(c.Flags(), "accept", "%q cannot be accepted: use one of %s", check, strings.Join(doctor.Acceptable, ", "))
				}
			}
			found, err := s.examine(c.Context(), s.targets.all())
			if err != nil {
				return err
			}
			found.accept(accept)
			document := any(found)
			if !grouped(s.targets.all()) { // a single set is printed as its report alone
				document = found.Groups[0].Report
			}
			if err := plain.OutputEither(c.OutOrStdout(), asJSON, document, found.text(all)); err != nil {
				return err
			}
			return found.verdict()
		},
	}
	s = serverFlags(c)
	c.Flags().StringSliceVar(&accept, "accept", nil, "turn warnings of this `CHECK` into notes: "+strings.Join(doctor.Acceptable, ", "))
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document, for machines")
	c.Flags().BoolVar(&all, "all", false, "also show the checks that passed")
	return c
}

// usualTTL is the library's default.
const usualTTL = 10 * time.Second

// An examination has the findings of doctor about one set of servers, or about groups.
type examination struct {
	Verdict doctor.Severity `json:"verdict"` // the worst of all
	Groups  []groupReport   `json:"groups"`
}

// A groupReport is the report about one group, or about the set.
type groupReport struct {
	Group string `json:"group"`
	*doctor.Report

	set serverSet
}

// examine examines the servers with the settings of clients.
func (s *servers) examine(ctx context.Context, sets []serverSet) (*examination, error) {
	opts, err := s.poolOptions()
	if err != nil {
		return nil, err
	}
	examined := make([]doctor.Set, len(sets))
	for i, set := range sets {
		examined[i].Groups = s.targets.hashOf(set)
		for _, u := range set.urls {
			server, err := doctor.Open(u, opts...)
			if err != nil {
				return nil, err
			}
			server.Password = server.Password || s.reach.login.areSet()
			examined[i].Servers = append(examined[i].Servers, server)
		}
	}
	settings := doctor.Settings{ // defaults of the library
		Timeout: s.reach.timeout, NodeTimeout: cmp.Or(s.locking.nodeTimeout, 500*time.Millisecond),
		MaxTTL: cmp.Or(s.locking.maxTTL, usualTTL), Prefix: s.locking.prefix, Guard: s.locking.guard,
	}
	found := &examination{}
	for i, report := range doctor.Examine(ctx, examined, settings) {
		found.Groups = append(found.Groups, groupReport{sets[i].group, report, sets[i]})
		found.Verdict = max(found.Verdict, report.Verdict)
	}
	return found, ctx.Err()
}

// accept turns the warnings of some checks into notes.
func (e *examination) accept(checks []string) {
	e.Verdict = doctor.OK
	for _, g := range e.Groups {
		g.Accept(checks)
		e.Verdict = max(e.Verdict, g.Report.Verdict)
	}
}

// verdict returns the findings as an exit code, without a message, because the findings were
// printed.
func (e *examination) verdict() error {
	noQuorum := func(g groupReport) bool { return g.Answered < g.Quorum }
	switch {
	case slices.ContainsFunc(e.Groups, noQuorum):
		return &exitError{code: exitNoQuorum}
	case slices.ContainsFunc(e.Groups, func(g groupReport) bool { return !g.Locks() }):
		return &exitError{code: exitDoctorFatal}
	case e.Verdict >= doctor.Warning:
		return &exitError{code: exitDoctorWarning}
	}
	return nil
}

func (e *examination) text(all bool) string {
	if e.Groups[0].Group == "" {
		return diagnosis(e.Groups[0].Report, all)
	}
	var b strings.Builder
	for i, g := range e.Groups {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s\n\n%s", strings.ToUpper(g.set.String()[:1])+g.set.String()[1:], diagnosis(g.Report, all))
	}
	return b.String()
}

// diagnosis returns the report for people. A finding that all servers have is printed once, with the
// longest of its times.
func diagnosis(r *doctor.Report, all bool) string {
	var b strings.Builder
	key := func(f doctor.Finding) doctor.Finding {
		f.Found, f.Means = protocol.WithoutTimes(f.Found), protocol.WithoutTimes(f.Means)
		return f
	}
	times, longest := map[doctor.Finding]int{}, map[doctor.Finding]doctor.Finding{}
	for _, n := range r.Nodes {
		for _, f := range n.Findings {
			k := key(f)
			if times[k]++; times[k] > 1 {
				f.Found, f.Means = protocol.WithLongestTimes(f.Found, longest[k].Found), protocol.WithLongestTimes(f.Means, longest[k].Means)
			}
			longest[k] = f
		}
	}
	common := func(f doctor.Finding) bool { return len(r.Nodes) > 1 && times[key(f)] == len(r.Nodes) }
	for _, n := range r.Nodes {
		fmt.Fprintf(&b, "%s: %v\n", plain.Word(n.Node), n.Worst())
		writeFindings(&b, slices.DeleteFunc(slices.Clone(n.Findings), common), all)
	}
	var every, together strings.Builder
	for _, f := range r.Nodes[0].Findings {
		if common(f) {
			writeFindings(&every, []doctor.Finding{longest[key(f)]}, all)
		}
	}
	writeFindings(&together, r.Together, all)
	if every.Len() > 0 {
		b.WriteString("every server\n" + every.String())
	}
	if together.Len() > 0 {
		b.WriteString("all together\n" + together.String())
	}
	meaning := map[doctor.Severity]string{
		doctor.OK: "fine", doctor.Note: "fine, with notes", doctor.Warning: "there are warnings", doctor.Fatal: "locks can be taken, but not every server has a vote",
	}[r.Verdict]
	if !r.Locks() {
		meaning = "not fit for locks"
	}
	fmt.Fprintf(&b, "\n%d of %d servers answered, %d are needed: %s\n", r.Answered, len(r.Nodes), r.Quorum, meaning)
	return b.String()
}

func writeFindings(b *strings.Builder, findings []doctor.Finding, all bool) {
	for _, f := range findings {
		if f.Severity == doctor.OK && !all {
			continue
		}
		lead := fmt.Sprintf("  %-8s ", f.Severity)
		text := plain.Harmless(f.Found)
		if f.Means != "" {
			text += ": " + plain.Harmless(f.Means)
		}
		b.WriteString(lead + plain.Wrap(text, len(lead)) + "\n")
		if f.Do != "" {
			lead = strings.Repeat(" ", len(lead)) + "-> "
			b.WriteString(lead + plain.Wrap(plain.Harmless(f.Do), len(lead)) + "\n")
		}
	}
}
