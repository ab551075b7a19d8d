// Command cron runs a job once per tick, though cron starts it on every machine, so that no machine
// is the one that must not fail.
//
// For a command that is no Go program, one line in the crontab of all machines does the same:
//
//	*/5 * * * * redlock run --no-wait --once-per 5m nightly-report -- /usr/local/bin/report
//
// A lock alone keeps two machines from working at the same time, but not one after the other:
// where the clocks differ by more than the job takes, the second machine comes when the first has
// done its work and released the lock. So package once marks the tick on a quorum of servers.
//
// job.go is what to copy. The tick is the time that was meant, which is the same on all machines.
// Cron is a moment late, and differently so on each; Run takes that off.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

func main() { servers.Main(story) }

func story(ctx context.Context, out io.Writer, urls []string) error {
	n, err := newNight(urls)
	if err != nil {
		return err
	}
	defer n.close()
	for _, tick := range []struct {
		title string
		run   func(context.Context) []report
	}{
		{"all at once", n.allAtOnce},
		{"the clock of clara is behind", n.oneComesLate},
		{"the job takes long", n.oneTakesLong},
		{"clara is cut off", n.oneIsCutOff},
	} {
		n.ticks++
		reports := tick.run(ctx)
		fmt.Fprintf(out, "%s, %s\n", n.tick().Format("15:04"), tick.title)
		for _, r := range reports {
			fmt.Fprintln(out, "    "+r.String())
			if r.machine == n.cut && !errors.Is(r.err, redlock.ErrNoQuorum) {
				return errors.Join(fmt.Errorf("%s should have reached no quorum", n.cut), r.err)
			}
			if r.machine != n.cut && r.err != nil {
				return r.err
			}
		}
	}
	want := []string{"report of 02:00", "report of 02:05", "report of 02:10", "report of 02:15"}
	if !slices.Equal(n.reports, want) {
		return fmt.Errorf("there should be one report for each tick: %q", n.reports)
	}
	fmt.Fprintln(out, "4 ticks, 4 reports")
	return nil
}

// A night is three machines and some ticks.
type night struct {
	machines []*machine
	ticks    int
	reports  []string              // one machine at a time writes, if the lock is good
	during   func(context.Context) // called while the job is at work; nil: nothing
	cut      string                // the machine that is cut off
}

type machine struct {
	name   string
	wires  *servers.Wires
	locker *redlock.Locker
	job    once.Job
}

// A report is the text that cron would mail.
type report struct {
	machine string
	outcome once.Outcome
	err     error
}

func (r report) String() string {
	var failure *redlock.QuorumError
	if errors.As(r.err, &failure) { // all of it would fill the screen
		return fmt.Sprintf("%s %s: %v, %d of %d votes", r.machine, outcome(r.outcome), failure.Err, failure.Votes, failure.Nodes)
	}
	return fmt.Sprintf("%s %s", r.machine, outcome(r.outcome))
}

func newNight(urls []string) (*night, error) {
	n := &night{}
	for _, name := range []string{"anna", "boris", "clara"} {
		wires, err := servers.NewWires(urls)
		if err != nil {
			n.close()
			return nil, err
		}
		locker, job, err := open(wires.URLs())
		if err != nil {
			wires.Close()
			n.close()
			return nil, err
		}
		n.machines = append(n.machines, &machine{name, wires, locker, job})
	}
	return n, nil
}

func (n *night) close() {
	for _, m := range n.machines {
		m.locker.Close()
		m.wires.Close()
	}
}

func (n *night) work(ctx context.Context, tick time.Time) error {
	if n.during != nil {
		n.during(ctx)
	}
	text, err := write(ctx, tick)
	if err == nil {
		n.reports = append(n.reports, text)
	}
	return err
}

// tick is the one that it is time for.
func (n *night) tick() time.Time {
	return time.Date(2030, time.January, 7, 2, 0, 0, 0, time.UTC).Add(time.Duration(n.ticks-1) * 5 * time.Minute)
}

// run lets machines run the job at the same time.
func (n *night) run(ctx context.Context, machines ...*machine) []report {
	reports := make([]report, len(machines))
	var all sync.WaitGroup
	for i, m := range machines {
		all.Go(func() {
			outcome, err := m.job.RunTick(ctx, n.tick(), n.work)
			reports[i] = report{machine: m.name, outcome: outcome, err: err}
		})
	}
	all.Wait()
	return reports
}

func (n *night) allAtOnce(ctx context.Context) []report { return n.run(ctx, n.machines...) }

// oneComesLate: the job is shorter than the clocks differ.
func (n *night) oneComesLate(ctx context.Context) []report {
	reports := n.run(ctx, n.machines[:2]...)
	return append(reports, n.run(ctx, n.machines[2])...)
}

// oneTakesLong: longer than the others are willing to wait.
func (n *night) oneTakesLong(ctx context.Context) []report {
	var others []report
	n.during = func(ctx context.Context) { others = n.run(ctx, n.machines[1:]...) }
	reports := n.run(ctx, n.machines[0])
	n.during = nil
	return append(reports, others...)
}

func (n *night) oneIsCutOff(ctx context.Context) []report {
	clara := n.machines[2]
	n.cut = clara.name
	clara.wires.Cut()
	defer clara.wires.Mend()
	return n.run(ctx, n.machines...)
}
