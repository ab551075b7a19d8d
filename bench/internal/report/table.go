package report

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A table is figures of subjects, one a row, as Text and HTML both show them.
type table struct {
	title   string
	columns []column
	rows    []row
}

type column struct {
	head string
	text bool // words, not figures: aligned to the left
}

type row struct {
	subject record.Subject // shown in the first column
	cells   []string       // of the other columns
	bad     []bool         // by cell; nil: none
}

// A figure is a column of a table of summaries.
type figure struct {
	head  string
	text  bool
	of    func(record.Summary) string
	bad   func(record.Summary) bool // nil: never
	known func(record.Summary) bool // the column is left out if it is of no row; nil: always
}

// tabulate makes the table of some summaries; none of them: no rows.
func (v view) tabulate(title string, sums []record.Summary, figures []figure) table {
	figures = slices.Clone(figures) // most are shared by all runs
	if len(v.subjects) < 2 {
		figures = slices.DeleteFunc(figures, func(f figure) bool { return f.head == "ratio" })
	}
	if v.sweep() {
		figures = slices.DeleteFunc(figures, func(f figure) bool { return f.head == "p99.9" }) // a terminal has no room for both
		figures = slices.Insert(figures, 0,
			figure{head: "point", text: true, of: func(s record.Summary) string {
				return s.Point
			}})
	}
	figures = slices.DeleteFunc(figures, func(f figure) bool {
		return f.known != nil && !slices.ContainsFunc(sums, f.known)
	})
	t := table{title: title}
	for _, f := range figures {
		t.columns = append(t.columns, column{f.head, f.text})
	}
	for _, s := range sums {
		r := row{subject: s.Subject, bad: make([]bool, len(figures))}
		for i, f := range figures {
			r.cells = append(r.cells, f.of(s))
			r.bad[i] = f.bad != nil && f.bad(s)
		}
		t.rows = append(t.rows, r)
	}
	return t
}

// tables are those that have something to say about this run.
func (v view) tables() []table {
	var cycles, held, checked []record.Summary
	for _, s := range v.sums {
		if s.Held != nil {
			held = append(held, s)
			continue
		}
		cycles = append(cycles, s)
		if s.Checked > 0 || s.Fairness.Max > 0 {
			checked = append(checked, s)
		}
	}
	all := []table{
		v.tabulate(speedTitle, cycles, speed),
		v.tabulate("costs of a cycle", cycles, v.costs()),
		v.faults(),
		v.tabulate("held locks", held, holding),
		v.tabulate("exclusion and fairness", checked, exclusion),
		v.outcomes(),
	}
	return slices.DeleteFunc(all, func(t table) bool { return len(t.rows) == 0 || len(t.columns) == 0 })
}

// latencyOf shows a latency of rounds that had one.
func latencyOf(pick func(record.Latency) record.Spread) func(record.Summary) string {
	return func(s record.Summary) string {
		if s.Acquired.Count() == 0 {
			return "-"
		}
		return span(pick(s.Acquire).Median)
	}
}

const speedTitle = "speed and time to acquire"

var speed = []figure{
	{head: "durability", text: true, of: func(s record.Summary) string { return s.Subject.Durability },
		known: func(s record.Summary) bool { return s.Subject.Durability != "" }},
	{head: "ratio", of: func(s record.Summary) string { return ratio(s.Ratio) }},
	{head: "cycles/s", of: func(s record.Summary) string { return count(s.PerSecond.Median) }},
	{head: "min–max", of: func(s record.Summary) string { return between(s.PerSecond, count) },
		known: func(s record.Summary) bool { return s.Rounds > 1 }},
	{head: "p50", of: latencyOf(func(l record.Latency) record.Spread { return l.P50 })},
	{head: "p99", of: latencyOf(func(l record.Latency) record.Spread { return l.P99 })},
	{head: "p99.9", of: latencyOf(func(l record.Latency) record.Spread { return l.P999 })},
	{head: "max", of: latencyOf(worst)},
	{head: "failed", of: func(s record.Summary) string { return percent(s.FailedShare.Median) }},
}

// worst is the maximum of all rounds: the median of maxima would hide a stall.
func worst(l record.Latency) record.Spread {
	return record.Spread{Median: l.Max.Max, Min: l.Max.Min, Max: l.Max.Max}
}

func between(s record.Spread, show func(float64) string) string {
	return show(s.Min) + "–" + show(s.Max)
}

// costs compares the first column with the first subject, as speed does.
func (v view) costs() []figure {
	first := map[string]float64{}
	for _, s := range v.sums {
		if len(v.run.Subjects) > 0 && s.Subject.Name == v.run.Subjects[0].Name {
			first[s.Point] = s.CPUPerCycle.Median
		}
	}
	unknown := func(x float64, show func(float64) string) string {
		if x == 0 {
			return "-"
		}
		return show(x)
	}
	return []figure{
		{head: "ratio", of: func(s record.Summary) string {
			if first[s.Point] == 0 {
				return "-"
			}
			return ratio(s.CPUPerCycle.Median / first[s.Point])
		}},
		{head: "client CPU", of: func(s record.Summary) string {
			return unknown(s.CPUPerCycle.Median, span)
		}},
		{head: "allocations", of: func(s record.Summary) string {
			return unknown(s.AllocsPerCycle.Median, count)
		},
			known: func(s record.Summary) bool { return s.AllocsPerCycle.Max > 0 }},
		{head: "bytes a node", of: func(s record.Summary) string {
			return unknown(s.BytesPerCycle.Median, size)
		},
			known: func(s record.Summary) bool { return s.BytesPerCycle.Max > 0 }},
		{head: "commands a node", of: func(s record.Summary) string {
			return unknown(s.CommandsPerCycle.Median, significant)
		},
			known: func(s record.Summary) bool { return s.CommandsPerCycle.Max > 0 }},
	}
}

var holding = []figure{
	{head: "acquired", of: func(s record.Summary) string {
		return whole(int64(s.Held.Acquired)) + " of " + whole(int64(s.Held.Wanted))
	},
		bad: func(s record.Summary) bool { return s.Held.Acquired < s.Held.Wanted }},
	{head: "lost", of: func(s record.Summary) string { return whole(int64(s.Held.Lost)) },
		bad: func(s record.Summary) bool { return s.Held.Lost > 0 }},
	{head: "memory a lock", of: func(s record.Summary) string { return size(perLock(s.Held, s.Held.Bytes)) }},
	{head: "on each server", of: func(s record.Summary) string { return size(perLock(s.Held, s.Held.OnNode)) },
		known: func(s record.Summary) bool { return s.Held.OnNode > 0 }},
	{head: "CPU of a core", of: func(s record.Summary) string { return percent(coreShare(s.Held)) }},
	{head: "held for", of: func(s record.Summary) string { return duration(s.Held.For) }},
}

func perLock(h *record.HeldLocks, bytes int64) float64 {
	if h.Acquired == 0 {
		return 0
	}
	return max(0, float64(bytes)/float64(h.Acquired))
}

func coreShare(h *record.HeldLocks) float64 {
	if h.For <= 0 {
		return 0
	}
	return float64(h.CPU) / float64(h.For)
}

var exclusion = []figure{
	{head: "holdings checked", of: func(s record.Summary) string { return whole(s.Checked) }},
	{head: "overlaps", of: func(s record.Summary) string {
		return whole(s.Violations)
	}, bad: func(s record.Summary) bool { return s.Violations > 0 }},
	{head: "fairness (Jain)", of: func(s record.Summary) string {
		return fmt.Sprintf("%.2f", s.Fairness.Median)
	},
		known: func(s record.Summary) bool { return s.Fairness.Max > 0 }},
}

const faultsTitle = "faults"

// faults tells how each fault was felt by each subject.
func (v view) faults() table {
	t := table{title: faultsTitle,
		columns: []column{{"fault", true}, {"no lock for", false}, {"recovery", false},
			{"p99 before", false}, {"p99 during", false}}}
	if v.sweep() {
		t.columns = slices.Insert(t.columns, 0, column{"point", true})
	}
	for _, s := range v.sums {
		for _, f := range s.Services {
			cells := []string{v.fault(s, f.Fault), duration(f.Without), recovered(f.Recovery),
				p99(f.Before), p99(f.During)}
			if v.sweep() {
				cells = slices.Insert(cells, 0, s.Point)
			}
			t.rows = append(t.rows, row{subject: s.Subject, cells: cells})
		}
	}
	return t
}

func recovered(after time.Duration) string {
	if after < 0 {
		return "none"
	}
	return duration(after)
}

func p99(q record.Quantiles) string {
	if q.Count == 0 {
		return "-"
	}
	return duration(q.P99)
}

// fault is the text of a fault that a subject went through.
func (v view) fault(s record.Summary, i int) string {
	for _, t := range v.run.Trials {
		if t.Subject == s.Subject.Name && t.Load.Point == s.Point && i >= 0 && i < len(t.Faults) {
			return fmt.Sprintf("%s at %s", t.Faults[i].What, duration(t.Faults[i].From))
		}
	}
	return fmt.Sprintf("fault %d", i+1)
}

// outcomeOrder is from good to bad, as tables and pictures list them.
var outcomeOrder = []string{record.OK, record.Held, record.NoQuorum, record.Failed, record.Gave,
	record.Lost, record.NotBegun, record.UnderWay}

// outcomes counts the outcomes of all cycles, if any of them is not success.
func (v view) outcomes() table {
	seen := map[string]bool{}
	for _, s := range v.sums {
		for outcome, n := range s.Outcomes {
			seen[outcome] = seen[outcome] || n > 0
		}
	}
	order := slices.Clone(outcomeOrder)
	for _, other := range slices.Sorted(maps.Keys(seen)) {
		if !slices.Contains(order, other) {
			order = append(order, other)
		}
	}
	var figures []figure
	bad := false
	for _, outcome := range order {
		if seen[outcome] {
			bad = bad || outcome != record.OK && outcome != record.UnderWay
			figures = append(figures, figure{head: outcome, of: func(s record.Summary) string {
				return whole(s.Outcomes[outcome])
			}})
		}
	}
	if !bad {
		return table{}
	}
	return v.tabulate("outcomes, all rounds together", v.sums,
		append(figures, figure{head: "keys left", of: func(s record.Summary) string {
			if s.KeysLeft < 0 {
				return "?"
			}
			return whole(int64(s.KeysLeft))
		}, bad: func(s record.Summary) bool { return s.KeysLeft > 0 }}))
}

// rounds lists every trial by itself.
func (v view) rounds() table {
	t := table{title: "each round",
		columns: []column{{"round", false}, {"cycles/s", false}, {"p50", false}, {"p99", false},
			{"max", false}, {"client CPU of a cycle", false}, {"failed", false}}}
	if v.sweep() {
		t.columns = slices.Insert(t.columns, 0, column{"point", true})
	}
	for _, trial := range v.run.Trials {
		if trial.Held != nil {
			continue
		}
		q := trial.Acquire.Quantiles()
		cells := []string{fmt.Sprint(trial.Round + 1), count(trial.PerSecond()), duration(q.P50),
			duration(q.P99), duration(q.Max),
			duration(trial.CPUPerCycle()), percent(trial.FailedShare())}
		if v.sweep() {
			cells = slices.Insert(cells, 0, trial.Load.Point)
		}
		t.rows = append(t.rows, row{subject: v.subjects[v.rank(trial.Subject)], cells: cells})
	}
	return t
}
