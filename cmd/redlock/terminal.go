package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// onTerminal reports whether a stream is a terminal.
func onTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// output writes a text to standard output.
func output(out io.Writer, text string) error {
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

// outputEither writes a document as a line of JSON, or else what people read instead.
func outputEither(out io.Writer, asJSON bool, document any, text string) error {
	if asJSON {
		line, err := json.Marshal(document)
		if err != nil {
			panic(err) // texts and numbers
		}
		text = string(line) + "\n"
	}
	return output(out, text)
}

// A prompt asks a question and reads the answer.
type prompt struct {
	in       io.Reader
	out      io.Writer
	terminal bool // in is one
}

func newPrompt(c *cobra.Command) prompt {
	return prompt{in: c.InOrStdin(), out: c.ErrOrStderr(), terminal: onTerminal(c.InOrStdin())}
}

// confirm asks a question, and returns an error unless one of the wanted lines is typed.
func (p prompt) confirm(ctx context.Context, question string, wanted ...string) error {
	if !p.terminal {
		return usageErrorf("it wants to be confirmed, and there is no terminal: give --yes, too; nothing was changed")
	}
	io.WriteString(p.out, question)
	typed := make(chan string, 1)
	go func() { // ends with the process if no line comes, because a read of a terminal cannot be cancelled
		line, _ := bufio.NewReader(p.in).ReadString('\n')
		typed <- strings.TrimRight(line, "\r\n")
	}()
	select {
	case line := <-typed:
		if !slices.Contains(wanted, line) {
			return errors.New("not confirmed: nothing was changed")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const clearScreen = "\x1b[H\x1b[2J"

// A screen is the size of a terminal; the zero value stands for what is none.
type screen struct{ width, height int }

func screenOf(out any) screen {
	if !onTerminal(out) {
		return screen{}
	}
	width, height, err := term.GetSize(int(out.(*os.File).Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return screen{columns, 24}
	}
	return screen{width, height}
}

// frame returns a text that is shown after others, over them on a terminal and below them elsewhere. It
// is one piece, so that a terminal does not flicker. On a terminal lines that are too long are cut and
// lines that are too many left out, because otherwise its head would scroll off.
func frame(text string, on screen) string {
	if on == (screen{}) {
		return text + "\n"
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if more := len(lines) - on.height + 1; more > 1 {
		lines = append(lines[:on.height-1], fmt.Sprintf("... %d more lines", more))
	}
	for i, line := range lines {
		if runes := []rune(line); len(runes) > on.width {
			lines[i] = string(runes[:on.width-1]) + "…"
		}
	}
	return clearScreen + strings.Join(lines, "\n")
}

// word returns s as one word of a line, in quotes and with escapes where it is not one as it
// stands. Every client of the servers can choose names and values, and parts of error messages.
// Printed as they are they could move a terminal's cursor, or rewrite what is shown.
func word(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == '"' || r == '\\' }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}

// advice returns a command line of ours about a lock, for people to copy into a shell.
func advice(command, name string, flags ...string) string {
	line := []string{"redlock", command}
	if !strings.HasPrefix(name, "-") {
		line = append(line, shellWord(name))
	}
	for _, f := range flags {
		line = append(line, shellWord(f))
	}
	if strings.HasPrefix(name, "-") { // which would be a flag
		line = append(line, "--", shellWord(name))
	}
	return strings.Join(line, " ")
}

// shellWord returns s as one word of a shell's command line. What cannot be printed is written as
// bash, zsh and ksh read it.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r))
	}
	switch {
	case s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }):
		return s
	case harmless(s) == s:
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

// harmless returns a line of text with escapes for what cannot be printed.
func harmless(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// columns is how wide a terminal is at least.
const columns = 80

// wrap breaks text into lines, all but the first of them indented by so many columns.
func wrap(text string, indent int) string {
	var b strings.Builder
	width := indent
	for i, w := range strings.Fields(text) {
		n := len([]rune(w))
		switch {
		case i == 0:
		case width+1+n > columns:
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
