package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A condition is a bound on a figure: [subject.]metric OP value.
type condition struct {
	text    string
	subject string // "": the run's first
	metric  metric
	op      string
	bound   float64
}

// conditions is the values of --fail-if.
type conditions []condition

// A metric is a figure of a summary that can be bounded.
type metric struct {
	name  string
	about string
	unit  unit
	of    func(record.Summary) float64 // unknown: there is no such figure
}

type unit int

const (
	number   unit = iota
	duration      // nanoseconds
	share         // 0 to 1, or with a %
)

var metrics = []metric{
	{"p50", "of acquiring", duration, func(s record.Summary) float64 {
		return known(s.Acquire.P50.Median)
	}},
	{"p90", "", duration, func(s record.Summary) float64 { return known(s.Acquire.P90.Median) }},
	{"p99", "", duration, func(s record.Summary) float64 { return known(s.Acquire.P99.Median) }},
	{"p999", "", duration, func(s record.Summary) float64 { return known(s.Acquire.P999.Median) }},
	{"max", "", duration, func(s record.Summary) float64 { return known(s.Acquire.Max.Max) }},
	{"cycle", "median of acquire and release", duration, func(s record.Summary) float64 {
		return known(s.Cycle.P50.Median)
	}},
	{"rate", "cycles a second", number, func(s record.Summary) float64 { return s.PerSecond.Median }},
	{"ratio", "rate against the first subject's", number, func(s record.Summary) float64 {
		if s.Ratio == 0 && s.PerSecond.Median > 0 {
			return unknown
		}
		return s.Ratio
	}},
	{"cpu", "of the client, a cycle", duration, func(s record.Summary) float64 {
		return known(s.CPUPerCycle.Median)
	}},
	{"allocs", "of the client, a cycle", number, func(s record.Summary) float64 {
		return known(s.AllocsPerCycle.Median)
	}},
	{"failed", "share of cycles", share, func(s record.Summary) float64 { return s.FailedShare.Max }},
	{"without", "longest time without an acquisition around a fault", duration,
		func(s record.Summary) float64 {
			return worst(s, func(f record.Service) float64 { return float64(f.Without) })
		}},
	{"recovery", "from a fault's end to the rate before", duration, func(s record.Summary) float64 {
		return worst(s, func(f record.Service) float64 {
			if f.Recovery < 0 {
				return never
			}
			return float64(f.Recovery)
		})
	}},
	{"slowdown", "p99 during a fault against before", number, func(s record.Summary) float64 {
		return worst(s, func(f record.Service) float64 {
			return known(float64(f.During.P99)) / known(float64(f.Before.P99))
		})
	}},
	{"fairness", "Jain's index over callers of one name", number, func(s record.Summary) float64 {
		return known(s.Fairness.Median)
	}},
	{"violations", "pairs of holders at one time", number, func(s record.Summary) float64 {
		return float64(s.Violations)
	}},
	{"keys-left", "on the nodes afterwards", number, func(s record.Summary) float64 {
		if s.KeysLeft < 0 {
			return unknown
		}
		return float64(s.KeysLeft)
	}},
	{"lost", "held locks", number, func(s record.Summary) float64 {
		if s.Held == nil {
			return unknown
		}
		return float64(s.Held.Lost + s.Held.Wanted - s.Held.Acquired)
	}},
}

// never is a duration beyond all others; unknown is no figure at all.
var never, unknown = math.Inf(1), math.NaN()

// known is a figure that is zero only where nothing was measured.
func known(v float64) float64 {
	if v == 0 {
		return unknown
	}
	return v
}

// worst is the highest figure of all faults, unknown if that of one is.
func worst(s record.Summary, of func(record.Service) float64) float64 {
	if len(s.Services) == 0 {
		return unknown
	}
	var highest float64
	for _, f := range s.Services {
		highest = max(highest, of(f))
	}
	return highest
}

func metricsHelp() string {
	var b strings.Builder
	b.WriteString("The first subject, unless one is named, at any point of a sweep. Metrics:")
	for i, m := range metrics {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(" " + m.name)
		if m.about != "" {
			b.WriteString(" (" + m.about + ")")
		}
	}
	return b.String()
}

func (c *conditions) String() string {
	if c == nil {
		return ""
	}
	var texts []string
	for _, one := range *c {
		texts = append(texts, one.text)
	}
	return strings.Join(texts, "; ")
}

// Set parses one condition and adds it.
func (c *conditions) Set(text string) error {
	at := strings.IndexAny(text, "<>")
	if at < 1 {
		return fmt.Errorf("%q: must be a metric, one of < <= > >=, and a value, such as p99>50ms", text)
	}
	left, right := strings.TrimSpace(text[:at]), text[at:]
	one := condition{text: text, op: right[:1]}
	if strings.HasPrefix(right[1:], "=") {
		one.op = right[:2]
	}
	value := strings.TrimSpace(right[len(one.op):])
	if i := strings.LastIndex(left, "."); i >= 0 {
		one.subject, left = left[:i], left[i+1:]
	}
	i := slices.IndexFunc(metrics, func(m metric) bool { return m.name == left })
	if i < 0 {
		names := make([]string, len(metrics))
		for j, m := range metrics {
			names[j] = m.name
		}
		return fmt.Errorf("%q: there is no metric %q; there are %s", text, left, strings.Join(names, ", "))
	}
	one.metric = metrics[i]
	var err error
	if one.bound, err = one.metric.unit.parse(value); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	*c = append(*c, one)
	return nil
}

func (u unit) parse(value string) (float64, error) {
	if u == duration {
		d, err := time.ParseDuration(value)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration such as 50ms", value)
		}
		return float64(d), nil
	}
	plain, percent := strings.CutSuffix(value, "%")
	n, err := strconv.ParseFloat(plain, 64)
	if err != nil || math.IsNaN(n) || percent && u != share {
		return 0, fmt.Errorf("%q is not a number", value)
	}
	if percent {
		n /= 100
	}
	return n, nil
}

func (u unit) format(v float64) string {
	if math.IsNaN(v) {
		return "not known"
	}
	switch u {
	case duration:
		if v == never {
			return "never"
		}
		return time.Duration(v).Round(100 * time.Nanosecond).String()
	case share:
		return strconv.FormatFloat(100*v, 'g', 4, 64) + "%"
	}
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// holds is so too if v is unknown.
func (c condition) holds(v float64) bool {
	if math.IsNaN(v) {
		return true
	}
	n := cmp.Compare(v, c.bound)
	switch c.op {
	case "<":
		return n < 0
	case "<=":
		return n <= 0
	case ">":
		return n > 0
	default:
		return n >= 0
	}
}

// met says which conditions the run meets. One on a subject or a figure that was not measured is
// met too: it must not pass for want of figures.
func (c conditions) met(run record.Run) (found []string) {
	summaries := run.Summaries()
	for _, one := range c {
		asked := false
		for _, s := range summaries {
			name := one.subject
			if name == "" {
				name = summaries[0].Subject.Name
			}
			if s.Subject.Name != name {
				continue
			}
			asked = true
			if v := one.metric.of(s); one.holds(v) {
				where := name
				if s.Point != "" {
					where += " at " + s.Point
				}
				found = append(found, fmt.Sprintf("fail-if %s: %s of %s is %s", one.text,
					one.metric.name, where, one.metric.unit.format(v)))
			}
		}
		if !asked {
			found = append(found, fmt.Sprintf("fail-if %s: %s was not measured", one.text,
				cmp.Or(one.subject, "the first subject")))
		}
	}
	return found
}
