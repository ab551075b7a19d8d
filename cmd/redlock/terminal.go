package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// onTerminal reports whether a person is at the other end of a stream.
func onTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A screen shows one text after the other: over the one before on a terminal,
// below it elsewhere.
type screen struct {
	out  io.Writer
	over bool
}

const (
	clearScreen = "\x1b[H\x1b[2J"
	blankLine   = "\n"
)

func newScreen(out io.Writer) *screen { return &screen{out: out, over: onTerminal(out)} }

// show writes in one piece, lest the screen flickers.
func (s *screen) show(text string) error {
	if s.over {
		text = clearScreen + text
	} else {
		text += blankLine
	}
	_, err := io.WriteString(s.out, text)
	return err
}
