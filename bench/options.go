package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
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
	list     bool
	nodes    string // embedded, process, or URLs
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
	memory  fleet.Memory // of nodes after a restart
	specs   []subject.Spec
	planned fault
}

func usage(out io.Writer) {
	f := new(options).flags()
	f.SetOutput(out)
	fmt.Fprint(out, "Usage: go -C bench run . [flags]\n\nMeasures quorum locks, and their behaviour while nodes fail. --list shows scenarios and subjects.\n\n")
	f.PrintDefaults()
}

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(io.Discard) // a page of usage would hide the error
	f.StringVar(&o.scenario, "scenario", "quick", "name of a scenario, or a file of flags; other flags override it")
	f.BoolVar(&o.list, "list", false, "list the scenarios and the subjects")
	f.StringVar(&o.nodes, "nodes", "embedded", "embedded (without meaning for speed), process, or redis:// URLs separated by commas")
	f.IntVar(&o.load.Nodes, "n", 5, "number of nodes to start")
	f.BoolVar(&o.durable, "durable", false, "have process nodes write to disk before each answer")
	f.StringVar(&o.subjects, "subjects", "redquorum,redsync", "libraries to measure, separated by commas; the others are compared with the first")
	f.IntVar(&o.rounds, "rounds", 3, "number of measurements of each subject, in turns")
	f.DurationVar(&o.load.Duration, "duration", 2*time.Second, "length of one measurement")
	f.DurationVar(&o.load.Warmup, "warmup", 200*time.Millisecond, "length of the load before it, which is not measured")
	f.IntVar(&o.load.Callers, "callers", 64, "number of concurrent callers; with --rate the most cycles under way")
	f.IntVar(&o.load.Processes, "processes", 1, "number of client processes that share the callers")
	f.Float64Var(&o.load.Rate, "rate", 0, "cycles a second to begin by a schedule; 0: each caller begins a cycle at the end of another")
	f.StringVar(&o.load.Names, "names", "own", "names to lock: own (one for each caller) or single (one for all)")
	f.DurationVar(&o.load.Hold, "hold", 0, "time for which each lock is held")
	f.IntVar(&o.load.Held, "held", 0, "number of locks to hold under renewal for the whole --duration, instead of cycles")
	f.DurationVar(&o.load.TTL, "ttl", 2*time.Second, "TTL of each lock; redquorum waits as long for new servers")
	f.DurationVar(&o.load.Patience, "patience", 0, "limit of a caller's waiting; 0: the library's own")
	f.StringVar(&o.fault, "fault", "", `break nodes: "kill 2 at 5s for 5s" or "pause 2 at 5s for 5s"`)
	f.StringVar(&o.json, "json", "", "`file` for the figures as JSON")
	f.StringVar(&o.svg, "svg", "", "`folder` for the pictures")
	f.StringVar(&o.document, "document", "", "measure all commands of this Markdown `file`, and write their figures into it")
	return f
}

// parse reads the flags: those of the scenario, and then those of the command line.
func parse(args []string) (*options, error) {
	var first, o options
	f := first.flags()
	if err := f.Parse(args); err != nil {
		return nil, fmt.Errorf("%w; --help lists the flags", err)
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: specify flags only", hide(f.Arg(0)))
	case first.document != "" && f.NFlag() > 1:
		return nil, errors.New("--document takes no other flags: its commands have them")
	case first.list || first.document != "":
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

// readScenario returns a scenario: a flag and its value in each line.
func readScenario(name string) (string, error) {
	text, err := scenarios.ReadFile("scenarios/" + name + ".txt")
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = os.ReadFile(name); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("unknown scenario %q: specify a file, or one of %s", name, strings.Join(scenarioNames(), ", "))
		}
	}
	return string(text), err
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

func list(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "Scenarios (--scenario):")
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

// settle checks the flags together.
func (o *options) settle() (err error) {
	l := &o.load
	o.kind = fleet.Kind(o.nodes)
	if strings.Contains(o.nodes, "://") {
		o.kind, l.Nodes = fleet.Addrs, len(o.urls())
	} else if o.kind != fleet.Embedded && o.kind != fleet.Process {
		return fmt.Errorf("--nodes %s: specify embedded, process, or URLs such as redis://10.0.0.1:6379", hide(o.nodes))
	}
	if !o.durable && o.kind == fleet.Process {
		o.memory = fleet.Lost
	}
	if o.specs, err = subject.Find(strings.Split(o.subjects, ",")); err != nil {
		return fmt.Errorf("--subjects: %w", err)
	}
	switch {
	case o.durable && o.kind != fleet.Process:
		return errors.New("--durable is for --nodes process")
	case o.fault != "" && o.kind == fleet.Addrs:
		return errors.New("--fault is for nodes that the benchmark starts, not for URLs")
	case o.rounds < 1 || l.Duration <= 0 || l.Warmup < 0 || l.Nodes < 1:
		return errors.New("--rounds, --duration and --n must be above zero, --warmup must not be negative")
	case !(l.Rate >= 0) || math.IsInf(l.Rate, 1) || l.Hold < 0 || l.Held < 0 || l.Patience < 0:
		return errors.New("--rate must be a number, and --rate, --hold, --held and --patience must not be negative")
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

func (o *options) urls() []string { return strings.Split(o.nodes, ",") }

// hide removes everything that may be the user and password of a mistyped URL.
func hide(typed string) string {
	if i := strings.LastIndex(typed, "@"); i >= 0 {
		return "***" + typed[i:]
	}
	return typed
}
