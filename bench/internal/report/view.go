package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A view is a run as all reports show it.
type view struct {
	run      record.Run
	sums     []record.Summary // by point, and within a point in the order of the subjects
	points   []string
	subjects []record.Subject // those that were measured
}

func look(run record.Run) view {
	v := view{run: clean(run), sums: run.Summaries()}
	for _, t := range run.Trials {
		if !slices.Contains(v.points, t.Load.Point) {
			v.points = append(v.points, t.Load.Point)
		}
	}
	for _, s := range v.sums {
		if !slices.ContainsFunc(v.subjects, func(o record.Subject) bool { return o.Name == s.Subject.Name }) {
			v.subjects = append(v.subjects, s.Subject)
		}
	}
	slices.SortStableFunc(v.sums, func(a, b record.Summary) int {
		return slices.Index(v.points, a.Point) - slices.Index(v.points, b.Point)
	})
	return v
}

// rank is the subject's place in the run, from which its colour follows. It does not depend on
// which subjects one picture shows.
func (v view) rank(name string) int {
	return slices.IndexFunc(v.subjects, func(s record.Subject) bool { return s.Name == name })
}

// colour is the number of the subject's colour in the style sheet.
func (v view) colour(name string) int { return v.rank(name) % 8 }

// stroke is the class of the subject's lines: beyond eight subjects colours come again, dashed.
func (v view) stroke(name string) string {
	class := fmt.Sprintf("l%d", v.colour(name))
	if v.rank(name) >= 8 {
		class += " dashed"
	}
	return class
}

func (v view) fill(name string) string { return fmt.Sprintf("f%d", v.colour(name)) }

// oneServer marks subjects that use the first node only, and so are no quorum.
const oneServer = "(one server)"

// title names a subject for people.
func title(s record.Subject) string {
	name := s.Title
	if name == "" {
		name = s.Name
	}
	if s.Single && !strings.Contains(name, oneServer) {
		name += " " + oneServer
	}
	return name
}

// first is the title of the subject that the others are compared with.
func (v view) first() string {
	if len(v.run.Subjects) > 0 {
		return title(v.run.Subjects[0])
	}
	return "the first"
}

// embedded nodes are a simulation within the benchmark's own process.
func (v view) embedded() bool { return v.run.Machine.Nodes == "embedded" }

// sweep says that there is more than one point to compare.
func (v view) sweep() bool { return len(v.points) > 1 }

// A user's URL may hold a password, and a library's error or the command may hold the URL. "/"
// cannot be in a password, it is written as %2F.
var userInfo = regexp.MustCompile(`://[^\s/]*@`)

func redact(s string) string { return userInfo.ReplaceAllString(s, "://***@") }

// clean is the run without passwords.
func clean(run record.Run) record.Run {
	run.Command = redact(run.Command)
	run.LeftOut = slices.Clone(run.LeftOut)
	for i, why := range run.LeftOut {
		run.LeftOut[i] = redact(why)
	}
	run.Trials = slices.Clone(run.Trials)
	for i := range run.Trials {
		t := &run.Trials[i]
		t.Violation = redact(t.Violation)
		errors := map[string]int64{}
		for message, n := range t.Errors {
			errors[redact(message)] += n
		}
		if t.Errors != nil {
			t.Errors = errors
		}
	}
	return run
}

// machine describes where the figures were measured, in a line.
func (v view) machine() string {
	m := v.run.Machine
	parts := []string{}
	add := func(ok bool, format string, args ...any) {
		if ok {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	nodes := map[int]bool{}
	for _, t := range v.run.Trials {
		nodes[t.Load.Nodes] = true
	}
	if len(nodes) == 1 {
		add(true, "%s", plural(v.run.Trials[0].Load.Nodes, m.Nodes+" node"))
	} else { // a sweep tells how many
		add(m.Nodes != "", "%s nodes", m.Nodes)
	}
	add(m.Servers != "", "%s", m.Servers)
	add(m.Durable, "written to disk before each answer")
	add(m.OS != "", "%s/%s", m.OS, m.Arch)
	add(m.CPUs > 0, "%s, GOMAXPROCS %d", plural(m.CPUs, "CPU"), m.GOMAXPROCS)
	add(m.Go != "", "%s", m.Go)
	return strings.Join(parts, ", ")
}

// load describes the work of the callers, in a line. The points name their differences.
func (v view) load() string {
	if len(v.run.Trials) == 0 {
		return ""
	}
	l := v.run.Trials[0].Load
	rounds := 0
	for _, s := range v.sums {
		rounds = max(rounds, s.Rounds)
	}
	var parts []string
	switch {
	case v.sweep():
		parts = append(parts, strings.Join(v.points, ", "))
		if l.Held > 0 {
			parts = append(parts, "locks held under renewal")
		}
	case l.Held > 0:
		parts = append(parts, plural(l.Held, "lock")+" held under renewal")
	default:
		parts = append(parts, plural(l.Callers, "caller"))
	}
	if l.Processes > 1 {
		parts = append(parts, fmt.Sprintf("%d client processes", l.Processes))
	}
	if l.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%s cycles/s begun by schedule", whole(int64(l.Rate))))
	}
	if l.Held == 0 {
		parts = append(parts, map[string]string{"own": "each with a name of its own",
			"single": "all want the same lock"}[l.Names])
		if parts[len(parts)-1] == "" {
			parts[len(parts)-1] = "names " + l.Names
		}
	}
	if l.Length > 0 {
		parts = append(parts, "names of "+plural(l.Length, "byte"))
	}
	if l.Hold > 0 {
		parts = append(parts, "each lock held for "+spanShort(float64(l.Hold)))
	}
	parts = append(parts, fmt.Sprintf("TTL %s, %s of %s", spanShort(float64(l.TTL)),
		plural(rounds, "round"), spanShort(float64(l.Duration))))
	return strings.Join(parts, ", ")
}

const embeddedWarning = "embedded nodes: these figures say nothing of speed"

// problems come before all figures: a lock that two had at once, locks left behind, a subject that
// did nothing at all.
func (v view) problems() []string {
	var all []string
	for _, s := range v.sums {
		say := func(format string, args ...any) {
			where := title(s.Subject)
			if v.sweep() && s.Point != "" {
				where += ", " + s.Point
			}
			all = append(all, where+": "+fmt.Sprintf(format, args...))
		}
		if s.Violations > 0 {
			say("%s", strings.TrimSuffix(fmt.Sprintf("%s of holders among %s holdings checked; %s",
				plural(s.Violations, "overlap"), whole(s.Checked), v.violation(s)), "; "))
		}
		if s.KeysLeft > 0 {
			say("%s left on the nodes after all clients had ended", plural(s.KeysLeft, "lock key"))
		}
		if s.Held == nil && s.PerSecond.Max == 0 {
			say("not one cycle succeeded")
		}
	}
	return all
}

// violation is the first overlap that was described.
func (v view) violation(s record.Summary) string {
	for _, t := range v.run.Trials {
		if t.Subject == s.Subject.Name && t.Load.Point == s.Point && t.Violation != "" {
			return t.Violation
		}
	}
	return ""
}
