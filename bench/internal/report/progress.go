package report

import (
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Progress is one line with the state of a long run: redrawn in place on a terminal, and silent
// anywhere else, where it would only fill a log. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer // nil: silent
	width func() int
	shown int // characters on the line
}

// NewProgress writes to f, most often os.Stderr, if that is a terminal.
func NewProgress(f *os.File) *Progress {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return &Progress{}
	}
	return &Progress{w: f, width: func() int {
		if w, _, err := term.GetSize(fd); err == nil && w > 1 {
			return w
		}
		return 80
	}}
}

// Show replaces the line. A longer one than the terminal is wide is cut: a second line could not be
// taken back.
func (p *Progress) Show(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w == nil {
		return
	}
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) { // a line break would leave the old line standing
			return ' '
		}
		return r
	}, line))
	if most := p.width() - 1; len(runes) > most {
		runes = runes[:most]
	}
	p.write(string(runes))
}

// Clear takes the line back, before anything else is written to the terminal and at the end.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w != nil && p.shown > 0 {
		p.write("")
		_, _ = io.WriteString(p.w, "\r")
	}
}

// write overwrites with spaces: not every terminal of Windows knows the sequence that erases.
// Errors of the terminal are ignored.
func (p *Progress) write(s string) {
	n := utf8.RuneCountInString(s)
	_, _ = io.WriteString(p.w, "\r"+s+strings.Repeat(" ", max(0, p.shown-n)))
	p.shown = n
}
