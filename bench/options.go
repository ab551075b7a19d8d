package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
	"github.com/redquorum/redquorum/internal/fleet"
)

// options are the values of the flags.
type options struct {
	scenario string
	nodes    string // embedded or process
	durable  bool
	load     record.Load
	fault    string
	subjects string
	rounds   int
	json     string
	svg      string
	document string

	// Set by settle.
	about   string
	kind    fleet.Kind
	memory  fleet.Memory // memory of nodes after a restart
	specs   []subject.Spec
	planned fault
}

// usage prints the flags, the scenarios and the subjects.
func usage(out io.Writer) {
	f := new(options).flags()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "Usage: go -C bench run . [flags]\n\nMeasures quorum locks, and their behaviour while nodes fail.\n\n")
	f.SetOutput(w)
	f.PrintDefaults()
	fmt.Fprintln(w, "\nScenarios (--scenario):")
	for _, name := range scenarioNames() {
		text, _ := readScenario(name) // it is embedded
		fmt.Fprintf(w, "  %s\t%s\n", name, about(text))
	}
	fmt.Fprintln(w, "\nSubjects (--subjects):")
	for _, s := range subject.All() {
		fmt.Fprintf(w, "  %s\t%s\n", s.Name, s.Title)
	}
	w.Flush()
}

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the long usage text would hide the error
	f.StringVar(&o.scenario, "scenario", "smoke", "name of a scenario, whose flags other flags override")
	f.StringVar(&o.nodes, "nodes", "embedded", "embedded (without meaning for speed) or process")
	f.IntVar(&o.load.Nodes, "n", 5, "number of nodes to start")
	f.BoolVar(&o.durable, "durable", false, "have process nodes write to disk before each answer")
	f.StringVar(&o.subjects, "subjects", "redquorum,redsync", "libraries to measure, separated by commas; the others are compared with the first")
	f.IntVar(&o.rounds, "rounds", 3, "number of measurements of each subject, in turns")
	f.DurationVar(&o.load.Duration, "duration", 2*time.Second, "length of one measurement")
	f.DurationVar(&o.load.Warmup, "warmup", 200*time.Millisecond, "length of the unmeasured load before it")
	f.IntVar(&o.load.Callers, "callers", 64, "number of concurrent callers; with --rate the most cycles under way")
	f.IntVar(&o.load.Processes, "processes", 1, "number of client processes that share the callers")
	f.Float64Var(&o.load.Rate, "rate", 0, "cycles a second to begin by a schedule; 0: each caller begins a cycle at the end of another")
	f.StringVar(&o.load.Names, "names", "own", "names to lock: own (one for each caller) or single (one for all)")
	f.DurationVar(&o.load.Hold, "hold", 0, "time for which each lock is held")
	f.IntVar(&o.load.Held, "held", 0, "number of locks to hold under renewal for the whole --duration, instead of cycles")
	f.DurationVar(&o.load.TTL, "ttl", 2*time.Second, "TTL of each lock; redquorum waits as long for new servers")
	f.DurationVar(&o.load.Patience, "patience", 0, "limit of a caller's wait; 0: the default of the library")
	f.StringVar(&o.fault, "fault", "", `break nodes: "kill 2 at 5s for 5s" or "pause 2 at 5s for 5s"`)
	f.StringVar(&o.json, "json", "", "`file` for the figures as JSON")
	f.StringVar(&o.svg, "svg", "", "`folder` for the pictures")
	f.StringVar(&o.document, "document", "", "measure all commands of this Markdown `file`, and write their figures into it")
	return f
}

// parse reads the flags of the scenario, and then the flags of the command line.
func parse(args []string) (*options, error) {
	var first, o options
	f := first.flags()
	if err := f.Parse(args); err != nil {
		return nil, fmt.Errorf("%w; --help lists the flags", err)
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: specify flags only", f.Arg(0))
	case first.document != "" && f.NFlag() > 1:
		return nil, errors.New("--document takes no other flags: its commands have them")
	case first.document != "":
		return &first, nil
	}
	text, err := readScenario(first.scenario)
	if err != nil {
		return nil, err
	}
	f = o.flags()
	for i, line := range strings.Split(text, "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || name[0] == '#' {
			continue
		}
		if err := f.Set(name, strings.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("scenario %s: line %d: %w", first.scenario, i+1, err)
		}
	}
	_ = f.Parse(args) // a second time
	o.about = about(text)
	return &o, o.settle()
}

//go:embed scenarios/*.txt
var scenarios embed.FS

// readScenario returns the flags of a scenario. Each line has a flag and its value.
func readScenario(name string) (string, error) {
	text, err := scenarios.ReadFile("scenarios/" + name + ".txt")
	if err != nil {
		return "", fmt.Errorf("unknown scenario %q: specify one of %s", name, strings.Join(scenarioNames(), ", "))
	}
	return string(text), nil
}

// about returns the first comment of a scenario.
func about(scenario string) string {
	_, comment, _ := strings.Cut(scenario, "#")
	comment, _, _ = strings.Cut(comment, "\n")
	return strings.TrimSpace(comment)
}

func scenarioNames() []string {
	files, _ := fs.Glob(scenarios, "scenarios/*.txt") // the pattern is valid
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".txt")
	}
	return files
}

// settle checks the combination of flags.
func (o *options) settle() (err error) {
	l := &o.load
	o.kind = fleet.Kind(o.nodes)
	if o.kind != fleet.Embedded && o.kind != fleet.Process {
		return fmt.Errorf("--nodes %q: specify embedded or process", o.nodes)
	}
	if !o.durable {
		o.memory = fleet.Lost
	}
	if o.specs, err = subject.Find(strings.Split(o.subjects, ",")); err != nil {
		return fmt.Errorf("--subjects: %w", err)
	}
	switch {
	case o.durable && o.kind != fleet.Process:
		return errors.New("--durable is for --nodes process")
	case o.rounds < 1 || l.Duration <= 0 || l.Nodes < 1 || l.Warmup < 0 || !(l.Rate >= 0) || math.IsInf(l.Rate, 1) || l.Hold < 0 || l.Held < 0 || l.Patience < 0:
		return errors.New("--rounds, --duration and --n must be above zero, and no other number below zero")
	case l.TTL < 10*time.Millisecond:
		return fmt.Errorf("--ttl %v is too short: specify at least 10ms", l.TTL)
	case l.Names != "own" && l.Names != "single":
		return fmt.Errorf("--names %q: specify own (one for each caller) or single (one for all)", l.Names)
	case l.Processes < 1 || l.Callers < l.Processes:
		return fmt.Errorf("--callers %d, --processes %d: each process needs a caller", l.Callers, l.Processes)
	case l.Held > 0 && (l.Rate > 0 || l.Hold > 0 || o.fault != ""):
		return errors.New("--held makes no cycles: omit --rate, --hold and --fault")
	}
	if o.fault != "" {
		if o.planned, err = parseFault(o.fault, *l); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
	}
	for _, s := range o.specs {
		switch {
		case l.Held > 0 && !s.Renews:
			return fmt.Errorf("%s does not renew locks, which --held needs: omit it from --subjects", s.Name)
		case s.Name == "limit" && (o.fault != "" || l.Names != "own" || l.Rate > 0 || l.Hold > 0):
			return errors.New("limit has no locks: omit --fault, --names, --rate and --hold, or omit limit from --subjects")
		}
	}
	return nil
}
