// Package plain writes texts for people at a terminal: names that others have chosen and that cannot move
// its cursor, lines that fit it, and commands to copy.
package plain

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Output writes a text to standard output.
func Output(out io.Writer, text string) error {
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

// OutputEither writes a document as a line of JSON, or else what people read instead.
func OutputEither(out io.Writer, asJSON bool, document any, text string) error {
	if asJSON {
		line, err := json.Marshal(document)
		if err != nil {
			panic(err) // texts and numbers
		}
		text = string(line) + "\n"
	}
	return Output(out, text)
}

// Table returns rows of cells in Columns, without the spaces that these leave at the end of lines.
func Table(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush()
	return trailing.ReplaceAllString(b.String(), "")
}

var trailing = regexp.MustCompile(`(?m) +$`)

const clearScreen = "\x1b[H\x1b[2J"

// A Screen is the size of a terminal; the zero value stands for what is none.
type Screen struct{ Width, Height int }

func ScreenOf(out any) Screen {
	if !IsTerminal(out) {
		return Screen{}
	}
	width, height, err := term.GetSize(int(out.(*os.File).Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return Screen{Columns, 24}
	}
	return Screen{width, height}
}

// Frame returns a text that is shown after others, over them on a terminal and below them elsewhere. It
// is one piece, so that a terminal does not flicker. On a terminal lines that are too long are cut and
// lines that are too many left out, because otherwise its head would scroll off.
func Frame(text string, on Screen) string {
	if on == (Screen{}) {
		return text + "\n"
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if more := len(lines) - on.Height + 1; more > 1 {
		lines = append(lines[:on.Height-1], fmt.Sprintf("... %d more lines", more))
	}
	for i, line := range lines {
		if runes := []rune(line); len(runes) > on.Width {
			lines[i] = string(runes[:on.Width-1]) + "…"
		}
	}
	return clearScreen + strings.Join(lines, "\n")
}

// Word returns s as one word of a line, in quotes and with escapes where it is not one as it
// stands. Every client of the servers can choose names and values, and parts of error messages.
// Printed as they are they could move a terminal's cursor, or rewrite what is shown.
func Word(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == '"' || r == '\\' }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}

// Advice returns a command line of ours about a lock, for people to copy into a shell.
func Advice(command, name string, flags ...string) string {
	line := []string{"redlock", command}
	if !strings.HasPrefix(name, "-") {
		line = append(line, ShellWord(name))
	}
	for _, f := range flags {
		line = append(line, ShellWord(f))
	}
	if strings.HasPrefix(name, "-") { // which would be a flag
		line = append(line, "--", ShellWord(name))
	}
	return strings.Join(line, " ")
}

// ShellWord returns s as one word of a shell's command line. What cannot be printed is written as
// bash, zsh and ksh read it.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r))
	}
	switch {
	case s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }):
		return s
	case Harmless(s) == s:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plain(rune(c)) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return "$'" + b.String() + "'"
}

// Harmless returns a line of text with escapes for what cannot be printed.
func Harmless(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Columns is how wide a terminal is at least.
const Columns = 80

// Wrap breaks text into lines, all but the first of them indented by so many columns.
func Wrap(text string, indent int) string {
	var b strings.Builder
	width := indent
	for i, w := range strings.Fields(text) {
		n := len([]rune(w))
		switch {
		case i == 0:
		case width+1+n > Columns:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			width = indent
		default:
			b.WriteString(" ")
			width++
		}
		b.WriteString(w)
		width += n
	}
	return b.String()
}

// OneLine returns a text as it is printed after our name. The library's errors begin with that
// name, too, so it is cut off.
func OneLine(text string) string {
	text = strings.TrimPrefix(strings.TrimPrefix(text, "redlock: "), "pool: ")
	text = strings.ReplaceAll(text, "; tests use package redlocktest", "") // which is for programs in Go
	return Harmless(strings.Join(strings.Fields(text), " "))
}

// Words returns names as a list of words.
func Words(names []string) string {
	all := make([]string, len(names))
	for i, s := range names {
		all[i] = Word(s)
	}
	return strings.Join(all, ", ")
}
