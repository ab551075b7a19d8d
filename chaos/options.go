package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/nemesis"
)

// options has the values of the flags.
type options struct {
	scenarios []nemesis.Scenario
	duration  time.Duration // of each scenario
	seed      uint64
	ttl       time.Duration
	clients   int
	nodes     int
	client    string
	redlock   string
	table     bool
	locks     []history.Lock
	noGuard   bool
	judge     string
	keep      string
	given     string // flags that a replay needs, in shell syntax
}

func parse(args []string, out io.Writer) (o options, err error) {
	var every []string
	for _, s := range nemesis.Scenarios {
		every = append(every, s.Name)
	}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(out)
	scenario := flags.String("scenario", "all",
		"all but clock-at-boot, or names with commas between them: "+strings.Join(every, ", "))
	flags.DurationVar(&o.duration, "duration", 2*time.Minute,
		"of the faults, split among the scenarios; each adds a few seconds to start and end")
	flags.Uint64Var(&o.seed, "seed", 0, "of the plan; 0 draws one")
	flags.DurationVar(&o.ttl, "ttl", 1150*time.Millisecond, "of the locks")
	flags.IntVar(&o.clients, "clients", 4, "number of client processes")
	flags.IntVar(&o.nodes, "nodes", 5, "number of servers")
	flags.StringVar(&o.client, "client", "", "take the locks of this `library`, or of a command that speaks chaos/PROTOCOL.md; "+
		"empty for this module's library; other libraries, each also with the suffix -best: "+strings.Join(client.Libraries(), ", "))
	flags.StringVar(&o.redlock, "redlock", "",
		"`path` of the redlock whose run and serve give locks, for example another version; empty: build it")
	flags.BoolVar(&o.table, "table", false, "print a row of a table for each scenario, and no report")
	locks := flags.String("locks", strings.Join(texts(history.Locks), ","),
		"kinds of locks that the clients ask for, with commas between them")
	flags.BoolVar(&o.noGuard, "no-guard", false,
		"turn the memory guard off, to see that the checks find what it prevents")
	flags.StringVar(&o.keep, "keep", "", "keep all histories in this `folder`, even without violations")
	flags.StringVar(&o.judge, "judge", "", "judge the history in this `file` again and do nothing else")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.duration <= 0 || o.ttl < 100*time.Millisecond || o.clients < 2 || o.nodes < 1 {
		return o, fmt.Errorf("there are no arguments; --duration must be above zero, --ttl at least 100ms, --clients at least 2, --nodes at least 1: %q", args)
	}
	flags.Visit(func(f *flag.Flag) {
		if slices.Contains([]string{"scenario", "duration", "seed", "keep"}, f.Name) { // the replay command sets this flag itself
			return
		}
		if (f.Name == "locks" || f.Name == "no-guard") && o.client != "" {
			err = fmt.Errorf("--%s is about this module's library, and not about a --client", f.Name)
		}
		o.given += fmt.Sprintf(" --%s='%s'", f.Name, strings.ReplaceAll(f.Value.String(), "'", `'\''`))
	})
	if err != nil {
		return o, err
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	for text := range strings.SplitSeq(*locks, ",") {
		l := history.Lock(text)
		if !slices.Contains(history.Locks, l) || slices.Contains(o.locks, l) {
			return o, fmt.Errorf("--locks %s: %q is not a kind of lock, or is duplicated; the kinds are %s", *locks, text, strings.Join(texts(history.Locks), ", "))
		}
		o.locks = append(o.locks, l)
	}
	asked, all := strings.Split(*scenario, ","), *scenario == "all"
	if all {
		asked = every
	}
	for _, name := range asked {
		s, ok := nemesis.ByName(name)
		if !ok {
			return o, fmt.Errorf("there is no scenario %q, but all, %s", name, strings.Join(every, ", "))
		}
		if all && s.Clocks { // clocks need libfaketime
			continue
		}
		fits := o.client == "" && !o.noGuard || !s.Standbys && !s.Copies && !s.Served && !s.ByRun
		if !fits && !all {
			return o, fmt.Errorf("--scenario %s is about what a --client does not know, and which needs the guard", name)
		}
		if fits {
			o.scenarios = append(o.scenarios, s)
		}
	}
	n := time.Duration(len(o.scenarios))
	if o.duration < n*shortest*o.ttl {
		return o, fmt.Errorf("--duration is too short: %d scenarios take %v", n, n*shortest*o.ttl)
	}
	o.duration /= n
	return o, nil
}

// shortest is the minimum length of a scenario with faults, in TTLs: the longest gap and the
// longest fault.
const shortest = 4
