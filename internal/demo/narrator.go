package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// A note is one line of the demo's output. With --json it is printed as it stands here.
type note struct {
	Note    string  `json:"note"` // scene, vote, shown, skipped or end
	Scene   int     `json:"scene,omitempty"`
	Text    string  `json:"text,omitempty"`
	Op      string  `json:"op,omitempty"`
	Node    string  `json:"node,omitempty"`
	Outcome string  `json:"outcome,omitempty"`
	Millis  float64 `json:"ms,omitempty"`
	Error   string  `json:"error,omitempty"`
	OK      *bool   `json:"ok,omitempty"` // end: whether all that was shown did happen
}

// A Narrator prints notes, for people or for machines. Its first error stays.
type Narrator struct {
	out    io.Writer
	json   bool
	colour bool
	scene  int
	err    error
}

// NewNarrator returns a Narrator that writes to out, with colours if that is a terminal.
func NewNarrator(out io.Writer, asJSON bool) *Narrator {
	n := &Narrator{out: out, json: asJSON}
	// https://no-color.org
	if f, ok := out.(*os.File); ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		n.colour = term.IsTerminal(int(f.Fd()))
	}
	return n
}

func (n *Narrator) begin(title string) {
	n.scene++
	n.print(note{Note: "scene", Text: title})
}

func (n *Narrator) shown(format string, args ...any) {
	n.print(note{Note: "shown", Text: fmt.Sprintf(format, args...)})
}

func (n *Narrator) skipped(why string) { n.print(note{Note: "skipped", Text: why}) }

func (n *Narrator) vote(e redlock.Event) {
	v := note{Note: "vote", Op: e.Op.String(), Node: e.Node, Outcome: e.Outcome.String(), Millis: float64(e.Elapsed) / float64(time.Millisecond)}
	if e.Err != nil {
		v.Error = e.Err.Error()
	}
	n.print(v)
}

func (n *Narrator) end(err error) {
	ok := err == nil
	v := note{Note: "end", OK: &ok}
	if !ok {
		v.Error = err.Error()
	}
	n.print(v)
}

func (n *Narrator) print(v note) {
	v.Scene = n.scene
	line := ""
	if n.json {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err) // a struct of strings and numbers
		}
		line = string(b) + "\n"
	} else {
		line = n.text(v)
	}
	if _, err := io.WriteString(n.out, line); err != nil && n.err == nil {
		n.err = fmt.Errorf("output: %w", err)
	}
}

func (n *Narrator) text(v note) string {
	switch v.Note {
	case "scene":
		return fmt.Sprintf("\n%s\n", n.paint(bold, fmt.Sprintf("%d. %s", v.Scene, v.Text)))
	case "vote":
		colour := map[string]string{protocol.Granted.String(): green, protocol.Refused.String(): yellow}[v.Outcome]
		if colour == "" {
			colour = red
		}
		line := fmt.Sprintf("   %-22s %s after %.2f ms", v.Node, n.paint(colour, fmt.Sprintf("%-8s", v.Outcome)), v.Millis)
		if v.Error != "" {
			line += "  " + v.Error
		}
		return line + "\n"
	case "shown":
		return fmt.Sprintf("   %s %s\n", n.paint(green, "ok"), v.Text)
	case "skipped":
		return fmt.Sprintf("   %s %s\n", n.paint(yellow, "skipped:"), v.Text)
	}
	if *v.OK {
		return "\n" + n.paint(green, "All of it happened as shown.") + "\n"
	}
	return "\n" + n.paint(red, "This did not happen as it should: ") + v.Error + "\n"
}

const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (n *Narrator) paint(code, text string) string {
	if !n.colour {
		return text
	}
	return "\x1b[" + code + "m" + strings.TrimSuffix(text, "\n") + "\x1b[0m"
}
