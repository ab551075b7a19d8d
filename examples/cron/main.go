package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func main() { servers.Main(story) }

// open is what each machine does at each tick.
func open(urls []string) (*redlock.Locker, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes,
		redlock.NodeTimeout(300*time.Millisecond), // all of this is on one machine, which may be busy
		redlock.MemoryGuard(false),                // new servers would have no vote for a TTL, and the first tick not run
	)
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	n, err := newNight(urls)
	if err != nil {
		return err
	}
	defer n.close()
	for _, tick := range []struct {
		title string
		run   func(context.Context) ([]report, error)
	}{
		{"all at once", n.allAtOnce},
		{"the clock of clara is behind", n.oneComesLate},
		{"the job takes long", n.oneTakesLong},
		{"clara is cut off", n.oneIsCutOff},
	} {
		reports, err := tick.run(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s, %s\n", n.tick().Format("15:04"), tick.title)
		for _, r := range reports {
			fmt.Fprintln(out, "    "+r.String())
		}
	}
	want := []string{"report of 02:00", "report of 02:05", "report of 02:10", "report of 02:15"}
	if rows := n.results.Rows(); !slices.Equal(rows, want) {
		return fmt.Errorf("there should be one report for each tick: %q", rows)
	}
	fmt.Fprintln(out, "4 ticks, 4 reports")
	return nil
}
