package report

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// columns is how wide text may be where that is for us to choose.
const columns = 110

// Text writes the run for a terminal.
func Text(w io.Writer, run record.Run) error {
	v := look(run)
	b := bufio.NewWriter(w)
	if len(v.subjects) == 0 {
		b.WriteString("nothing was measured\n")
		return b.Flush()
	}
	paragraph(b, "", fmt.Sprintf("%s: %s", v.run.Scenario, v.run.About))
	paragraph(b, "", v.load())
	paragraph(b, "", v.machine())
	if v.embedded() {
		fmt.Fprintf(b, "\n%s\n", strings.ToUpper(embeddedWarning))
	}
	for i, problem := range v.problems() {
		if i == 0 {
			b.WriteString("\n")
		}
		paragraph(b, "!! ", problem)
	}
	for _, t := range v.tables() {
		t.text(b, v)
	}
	v.errorsText(b)
	b.WriteString("\n")
	for _, s := range v.subjects {
		note := title(s)
		if note == s.Name {
			note = s.Note
		} else if s.Note != "" {
			note += ": " + s.Note
		}
		paragraph(b, s.Name+"  ", note)
	}
	for _, why := range v.run.LeftOut {
		paragraph(b, "left out  ", why)
	}
	return b.Flush()
}

// paragraph writes s in lines that are not too long, after a lead.
func paragraph(w io.Writer, lead, s string) {
	if s == "" {
		return
	}
	line := lead
	for i, word := range strings.Fields(s) {
		if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = "    "
		} else if i > 0 {
			line += " "
		}
		line += word
	}
	fmt.Fprintln(w, line)
}

// legend explains a table's figures where its heads do not.
func (v view) legend(t table) string {
	if t.title == faultsTitle {
		return "no lock for: the longest time without an acquisition. recovery: from the fault's end to 90 % of the rate before it."
	}
	if !slices.ContainsFunc(t.columns, func(c column) bool { return c.head == "ratio" }) {
		return ""
	}
	if t.title == speedTitle {
		return fmt.Sprintf("ratio: cycles/s by those of %s. Latencies are of the acquisition.", v.first())
	}
	return fmt.Sprintf("ratio: client CPU by that of %s.", v.first())
}

// text writes the table in aligned columns.
func (t table) text(w io.Writer, v view) {
	lines := [][]string{{"subject"}}
	for _, c := range t.columns {
		lines[0] = append(lines[0], c.head)
	}
	for _, r := range t.rows {
		line := []string{r.subject.Name}
		if r.subject.Single {
			line[0] += " " + oneServer
		}
		for i, cell := range r.cells {
			if r.bad != nil && r.bad[i] {
				cell += " !!"
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintf(w, "\n%s\n", strings.ToUpper(t.title))
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if left := i == 0 || t.columns[i-1].text; left {
				b.WriteString(cell + pad + "  ")
			} else {
				b.WriteString(pad + cell + "  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	if legend := v.legend(t); legend != "" {
		paragraph(w, "", legend)
	}
}

// A frequentError is an error that a subject met, and how often.
type frequentError struct {
	subject record.Subject
	message string
	count   int64
}

// frequentErrors are each subject's most frequent ones.
func (v view) frequentErrors() []frequentError {
	var all []frequentError
	for _, s := range v.subjects {
		counts := map[string]int64{}
		for _, t := range v.run.Trials {
			if t.Subject == s.Name {
				for message, n := range t.Errors {
					counts[message] += n
				}
			}
		}
		messages := slices.Sorted(maps.Keys(counts))
		slices.SortStableFunc(messages, func(a, b string) int { return int(counts[b] - counts[a]) })
		for _, message := range messages[:min(5, len(messages))] {
			all = append(all, frequentError{s, message, counts[message]})
		}
	}
	return all
}

func (v view) errorsText(w io.Writer) {
	for i, e := range v.frequentErrors() {
		if i == 0 {
			fmt.Fprint(w, "\nMOST FREQUENT ERRORS\n")
		}
		paragraph(w, e.subject.Name+"  ", fmt.Sprintf("%s × %s", whole(e.count), e.message))
	}
}
