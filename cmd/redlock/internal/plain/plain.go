// Package plain formats texts for people at a terminal: names chosen by others, which must not move
// the cursor, lines that fit the terminal, and commands to copy.
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

// OutputEither writes a document as a line of JSON, or otherwise the text for people.
func OutputEither(out io.Writer, asJSON bool, document any, text string) error {
	if asJSON {
		line, err := json.Marshal(document)
		if err != nil {
			panic(err) // the documents contain only texts and numbers
		}
		text = string(line) + "\n"
	}
	return Output(out, text)
}

// Table returns rows of cells in columns, without spaces at the end of lines.
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

// A Screen is the size of a terminal; the zero value means no terminal.
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

// Frame returns a text that replaces earlier ones on a terminal, and follows them elsewhere. It is
// one piece, so that a terminal does not flicker. On a terminal, long lines are cut and extra lines
// omitted, because otherwise the head of the text would scroll off.
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

// Word returns s as one word of a line, with quotes and escapes if it needs them. Every client of
// the servers can choose names and values, and parts of error messages. Printed directly, they
// could move a terminal's cursor, or change displayed text.
func Word(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == '"' || r == '\\' }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}

// Advice returns a redlock command line about a lock, for people to copy into a shell.
func Advice(command, name string, flags ...string) string {
	line := []string{"redlock", command}
	if !strings.HasPrefix(name, "-") {
		line = append(line, ShellWord(name))
	}
	for _, f := range flags {
		line = append(line, ShellWord(f))
	}
	if strings.HasPrefix(name, "-") { // otherwise the name would be a flag
		line = append(line, "--", ShellWord(name))
	}
	return strings.Join(line, " ")
}

// ShellWord returns s as one word of a shell's command line. Unprintable characters are written in
// the notation of bash, zsh and ksh.
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

// Harmless returns a line of text with escapes for unprintable characters.
func Harmless(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Columns is the minimum width of a terminal.
const Columns = 80

// Wrap breaks text into lines. All lines except the first are indented.
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

// OneLine formats an error for printing after the program's name. The library's errors begin with
// the same name, which OneLine removes.
func OneLine(text string) string {
	text = strings.TrimPrefix(strings.TrimPrefix(text, "redlock: "), "pool: ")
	text = strings.ReplaceAll(text, "; tests use package redlocktest", "") // advice for Go programs
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
