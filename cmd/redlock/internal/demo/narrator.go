package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/redlock"
)

// A Narrator prints events. It keeps its first error.
type Narrator struct {
	out   io.Writer
	pace  time.Duration // time for a person to read a line; zero without a terminal
	scene int
	lines int // lines in the current scene
	left  int // skipped scenes
	err   error
}

// readingTime is the minimum time for which a line is shown before the next scene.
const readingTime = 250 * time.Millisecond

// NewNarrator returns a Narrator that writes to out. On a terminal it pauses after each scene.
func NewNarrator(out io.Writer) *Narrator {
	n := &Narrator{out: out}
	if plain.IsTerminal(out) {
		n.pace = readingTime
	}
	return n
}

func (n *Narrator) print(format string, args ...any) {
	n.lines++
	if _, err := fmt.Fprintf(n.out, format+"\n", args...); err != nil && n.err == nil {
		n.err = fmt.Errorf("output: %w", err)
	}
}

func (n *Narrator) begin(title string) {
	n.scene++
	n.lines = 0
	n.print("\n%d. %s", n.scene, title)
}

func (n *Narrator) shown(format string, args ...any) { n.print("   ok "+format, args...) }

func (n *Narrator) skipped(why string) {
	n.left++
	n.print("   skipped: %s", why)
}

// nodeName returns the name of node i in the demo, which is shorter than its address.
func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// vote prints the vote of node i.
func (n *Narrator) vote(i int, e redlock.Event) {
	why := ""
	if e.Err != nil {
		why = "  " + short(e.Err.Error())
	}
	n.print("   %-3s %-8s %7.2f ms%s", nodeName(i), e.Outcome, float64(e.Elapsed)/float64(time.Millisecond), why)
}

// short returns the end of an error's text, which describes the problem of a node.
func short(text string) string {
	const most = 50
	text = text[strings.LastIndex(text, ": ")+1:]
	return strings.TrimSpace(text[:min(len(text), most)])
}

// pause gives a person time to read the scene. It returns the error of the context.
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

func (n *Narrator) end(err error) {
	switch {
	case err != nil:
		n.print("\nThis did not happen as it should: %v", err)
	case n.left > 0:
		n.print("\n%d of %d scenes happened as shown. The others break servers:\n%q plays them on five of its own.",
			n.scene-n.left, n.scene, "redlock demo")
	default:
		n.print("\nAll of it happened as shown.")
	}
}
