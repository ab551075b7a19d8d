package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// A note is one line of the demo's output. With --json it is printed as it stands here.
type note struct {
	Note    string  `json:"note"` // node, scene, vote, shown, skipped or end
	Scene   int     `json:"scene,omitempty"`
	Text    string  `json:"text,omitempty"`
	Op      string  `json:"op,omitempty"`
	Name    string  `json:"name,omitempty"` // of the node, here: n1, n2, ...
	Node    string  `json:"node,omitempty"`
	Outcome string  `json:"outcome,omitempty"`
	Millis  float64 `json:"ms,omitempty"`
	Error   string  `json:"error,omitempty"`
	OK      *bool   `json:"ok,omitempty"`      // end: whether all that was shown did happen
	Skipped int     `json:"skipped,omitempty"` // end: scenes
}

// A Narrator prints notes, for people or for machines. Its first error stays.
type Narrator struct {
	out    io.Writer
	json   bool
	colour bool
	pace   time.Duration // for a person to read a line; zero where none reads
	scene  int
	lines  int // of the scene
	left   int // scenes that were left out
	err    error
}

// readingTime is how long a line stays at least before the next scene.
const readingTime = 250 * time.Millisecond

// NewNarrator returns a Narrator that writes to out. If that is a terminal it has colours, and a
// pause behind each scene.
func NewNarrator(out io.Writer, asJSON bool) *Narrator {
	n := &Narrator{out: out, json: asJSON}
	if f, ok := out.(*os.File); ok && !asJSON && term.IsTerminal(int(f.Fd())) {
		n.pace = readingTime
		n.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" // https://no-color.org
	}
	return n
}

// cast names the nodes.
func (n *Narrator) cast(addresses []string) {
	for i, a := range addresses {
		n.print(note{Note: "node", Name: nodeName(i), Node: a})
	}
}

// nodeName returns the name of node i in the demo, which is shorter than its address.
func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

func (n *Narrator) begin(title string) {
	n.scene++
	n.lines = 0
	n.print(note{Note: "scene", Text: title})
}

// pause leaves a person time to read the scene. Its error is the context's.
func (n *Narrator) pause(ctx context.Context) error {
	if n.pace == 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(time.Duration(n.lines) * n.pace):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Narrator) shown(format string, args ...any) {
	n.print(note{Note: "shown", Text: fmt.Sprintf(format, args...)})
}

func (n *Narrator) skipped(why string) {
	n.left++
	n.print(note{Note: "skipped", Text: why})
}

// vote prints the vote of node i.
func (n *Narrator) vote(i int, e redlock.Event) {
	v := note{Note: "vote", Op: e.Op.String(), Name: nodeName(i), Node: e.Node, Outcome: e.Outcome.String(), Millis: float64(e.Elapsed) / float64(time.Millisecond)}
	if e.Err != nil {
		v.Error = e.Err.Error()
	}
	n.print(v)
}

func (n *Narrator) end(err error) {
	ok := err == nil
	v := note{Note: "end", OK: &ok, Skipped: n.left}
	if !ok {
		v.Error = err.Error()
	}
	n.print(v)
}

func (n *Narrator) print(v note) {
	v.Scene = n.scene
	n.lines++
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
	case "node":
		return fmt.Sprintf("   %-3s is %s\n", v.Name, v.Node)
	case "scene":
		return fmt.Sprintf("\n%s\n", n.paint(bold, fmt.Sprintf("%d. %s", v.Scene, v.Text)))
	case "vote":
		colour := map[string]string{protocol.Granted.String(): green, protocol.Refused.String(): yellow}[v.Outcome]
		if colour == "" {
			colour = red
		}
		line := fmt.Sprintf("   %-3s %s %7.2f ms", v.Name, n.paint(colour, fmt.Sprintf("%-8s", v.Outcome)), v.Millis)
		if v.Error != "" {
			line += "  " + short(v.Error)
		}
		return line + "\n"
	case "shown":
		return fmt.Sprintf("   %s %s\n", n.paint(green, "ok"), v.Text)
	case "skipped":
		return fmt.Sprintf("   %s %s\n", n.paint(yellow, "skipped:"), v.Text)
	}
	switch {
	case !*v.OK:
		return "\n" + n.paint(red, "This did not happen as it should: ") + v.Error + "\n"
	case v.Skipped > 0:
		return "\n" + n.paint(green, fmt.Sprintf("%d of %d scenes happened as shown.", v.Scene-v.Skipped, v.Scene)) +
			" The others break servers:\n\"redlock demo --node embedded\" plays them on five of its own.\n"
	}
	return "\n" + n.paint(green, "All of it happened as shown.") + "\n"
}

// short returns the end of an error's text, which says what was wrong with a node.
func short(text string) string {
	const most = 50
	text = text[strings.LastIndex(text, ": ")+1:]
	return strings.TrimSpace(text[:min(len(text), most)])
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
