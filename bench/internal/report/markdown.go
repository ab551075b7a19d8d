package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// Markdown writes the figures that tell most as one table: how faults were felt, what held locks
// cost, or speed and either what it costs or who was served.
func Markdown(w io.Writer, run record.Run) error {
	v := look(run)
	b := bufio.NewWriter(w)
	t := v.digest()
	line := func(first string, cells []string) {
		fmt.Fprintf(b, "| %s |", cellText(first))
		for _, c := range cells {
			fmt.Fprintf(b, " %s |", cellText(c))
		}
		fmt.Fprintln(b)
	}
	var heads, rules []string
	for _, c := range t.columns {
		heads = append(heads, c.head)
		rule := "--:"
		if c.text {
			rule = "---"
		}
		rules = append(rules, rule)
	}
	line("", heads)
	line("---", rules)
	for _, r := range t.rows {
		line(title(r.subject), r.cells)
	}
	return b.Flush()
}

// digest is the one table of Markdown.
func (v view) digest() table {
	cycles := cycling(v.sums)
	if len(cycles) == 0 {
		return v.tabulate("", v.sums, holding)
	}
	if t := v.faults(); len(t.rows) > 0 {
		return t
	}
	figures, heads := append(slices.Clone(speed), exclusion...), []string{"ratio", "cycles/s", "min–max", "p50", "p99"}
	if slices.ContainsFunc(cycles, func(s record.Summary) bool { return s.Fairness.Max > 0 }) {
		heads = append(heads, "overlaps", "fairness (Jain)")
	} else {
		figures = append(figures, v.costs()[1:]...) // the first is a ratio, too
		heads = append(heads, "client CPU", "allocations", "commands a node")
	}
	return v.tabulate("", cycles, slices.DeleteFunc(figures, func(f figure) bool { return !slices.Contains(heads, f.head) }))
}

// cellText keeps a text from ending its cell or its line.
func cellText(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}
