package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/fault"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
	"github.com/redquorum/redquorum/internal/fleet"
)

// options are the values of the flags.
type options struct {
	scenario string
	about    string
	list     bool

	nodes    string // a fleet.Kind, or URLs
	durable  bool
	load     record.Load
	sweeps   sweeps
	fault    string
	subjects string
	rounds   int

	json     string
	svg      string
	document string
	profile  string

	// Made of the above by settle.
	kind    fleet.Kind
	memory  fleet.Memory // of nodes after a restart
	specs   []subject.Spec
	planned fault.Fault
}

// usage prints what --help asks for.
func usage(out io.Writer) {
	f := new(options).flags()
	f.SetOutput(out)
	fmt.Fprint(out, "Usage: go -C bench run . [flags]\n\nMeasures quorum locks, and how they bear failing nodes. --list shows scenarios and subjects.\n\n")
	f.PrintDefaults()
}

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(io.Discard) // a page of usage would hide the error
	f.StringVar(&o.scenario, "scenario", "quick",
		"name of a scenario, or a file of flags; other flags override it")
	f.BoolVar(&o.list, "list", false, "list the scenarios and the subjects, and do nothing else")

	f.StringVar(&o.nodes, "nodes", "embedded",
		"embedded (says nothing of speed), process, docker, or redis:// URLs with commas between them")
	f.IntVar(&o.load.Nodes, "n", 5, "number of nodes to start")
	f.BoolVar(&o.durable, "durable", false,
		"have process and docker nodes write to disk before they answer, which then is what is measured")
	f.StringVar(&o.subjects, "subjects", "redquorum,redsync",
		"libraries to measure, with commas between them; the first is compared with the others")
	f.IntVar(&o.rounds, "rounds", 3, "rounds; every round measures each subject once, in rotated order")

	f.DurationVar(&o.load.Duration, "duration", 2*time.Second, "of one measurement")
	f.DurationVar(&o.load.Warmup, "warmup", 200*time.Millisecond, "of load before it, not measured")
	f.IntVar(&o.load.Callers, "callers", 64,
		"concurrent callers; with --rate the most that may be under way")
	f.IntVar(&o.load.Processes, "processes", 1, "client processes that the callers are spread over")
	f.Float64Var(&o.load.Rate, "rate", 0,
		"cycles a second to begin (open loop); 0: each caller begins the next when one has ended (closed loop)")
	f.StringVar(&o.load.Names, "names", "own",
		"names to lock: own (one a caller) or single (one for all)")
	f.IntVar(&o.load.Length, "length", 0, "bytes of each name, which is filled up to them; 0: as short as names are")
	f.DurationVar(&o.load.Hold, "hold", 0, "how long each lock is held")
	f.IntVar(&o.load.Held, "held", 0,
		"instead of cycles: this many locks, held under renewal for the whole --duration")
	f.DurationVar(&o.load.TTL, "ttl", 2*time.Second, "of each lock; new servers are waited for as long")
	f.DurationVar(&o.load.Patience, "patience", 0,
		"after which a caller gives up waiting; 0: when the library does")
	f.StringVar(&o.fault, "fault", "", `"kill 2 at 5s for 5s", "pause 2 at ..."`)
	f.Var(&o.sweeps, "sweep", "measure several loads: callers=1,16,256, or nodes=, processes= or length=; may be repeated, and each varies its part alone")

	f.StringVar(&o.json, "json", "", "`file` for the figures as JSON")
	f.StringVar(&o.svg, "svg", "", "`folder` for the pictures")
	f.StringVar(&o.document, "document", "", "measure all commands in this Markdown `file`, and put their figures and pictures into it")
	f.StringVar(&o.profile, "profile", "", "`folder` for CPU profiles of the first client process")
	return f
}

// parse reads the flags: first the scenario's, then those of the command line.
func parse(args []string) (*options, error) {
	var first options
	f := first.flags()
	if err := f.Parse(args); err != nil {
		return nil, fmt.Errorf("%w; --help lists the flags", err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("there are no arguments, only flags: %q", hide(strings.Join(f.Args(), " ")))
	}
	if first.list {
		return &first, nil
	}
	if first.document != "" {
		if f.NFlag() > 1 {
			return nil, errors.New("--document is alone: the flags are those of the commands in the file")
		}
		return &first, nil
	}
	s, err := loadScenario(first.scenario)
	if err != nil {
		return nil, err
	}
	var o options
	f = o.flags()
	if err := s.set(f); err != nil {
		return nil, err
	}
	o.sweeps.inherited = true
	if err := f.Parse(args); err != nil { // it was parsed before
		return nil, err
	}
	o.about = s.about()
	return &o, o.settle()
}

// settle checks what depends on more than one flag.
func (o *options) settle() error {
	l := o.load
	var err error
	if o.specs, err = subject.Find(strings.Split(o.subjects, ",")); err != nil {
		return fmt.Errorf("--subjects: %w", err)
	}
	switch {
	case o.rounds < 1 || l.Duration <= 0 || l.Warmup < 0 || l.Nodes < 1:
		return errors.New("--rounds, --duration and --n must be above zero, --warmup not below it")
	case !(l.Rate >= 0) || math.IsInf(l.Rate, 1) || l.Hold < 0 || l.Held < 0 || l.Patience < 0:
		return errors.New("--rate must be a number, and neither it nor --hold, --held or --patience below zero")
	case l.TTL < 10*time.Millisecond:
		return fmt.Errorf("--ttl %v is too short: at least 10ms", l.TTL)
	case l.Names != "own" && l.Names != "single":
		return fmt.Errorf("--names %q: must be own (each caller its own) or single (one for all)", l.Names)
	}
	if o.fault != "" {
		if o.planned, err = fault.Parse(o.fault); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
	}
	if err := o.settleNodes(); err != nil {
		return err
	}
	for _, p := range o.points() {
		if err := o.planned.Fits(p.Nodes, p.Duration); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
		switch {
		case p.Length != 0 && (p.Length < 16 || p.Length > 64<<10): // shorter names could not be told apart
			return fmt.Errorf("--length %d: must be 16 to 65536 bytes", p.Length)
		case p.Processes < 1 || p.Callers < p.Processes:
			return fmt.Errorf("--callers %d, --processes %d: every process needs a caller", p.Callers, p.Processes)
		case p.Held > 0 && (p.Rate > 0 || p.Hold > 0):
			return errors.New("--held locks are held all the time, so there are no cycles: leave out --rate and --hold")
		}
	}
	for _, s := range o.specs {
		switch {
		case l.Held > 0 && !s.Renews:
			return fmt.Errorf("%s does not renew locks by itself, so it cannot hold any: leave it out of --subjects", s.Name)
		case s.Drive != nil && (o.fault != "" || l.Names != "own" || l.Length > 0 || o.sweeps.has("length") || l.Rate > 0 || l.Held > 0 || l.Hold > 0):
			return fmt.Errorf("%s is cycles without a library: it knows neither faults nor shared names, --length, --rate, --hold or --held; leave it out of --subjects", s.Name)
		}
	}
	return nil
}

func (o *options) settleNodes() error {
	o.kind = fleet.Kind(o.nodes)
	if !strings.Contains(o.nodes, "://") {
		if o.kind != fleet.Embedded && o.kind != fleet.Process && o.kind != fleet.Docker {
			return fmt.Errorf("--nodes %s: must be embedded, process, docker, or URLs such as redis://10.0.0.1:6379", hide(o.nodes))
		}
		if o.durable && o.kind == fleet.Embedded {
			return errors.New("--durable is for --nodes process and docker: embedded nodes have no disk")
		}
		if !o.durable && o.kind != fleet.Embedded {
			o.memory = fleet.Lost
		}
		return nil
	}
	o.kind = fleet.Addrs
	if o.durable || o.fault != "" || o.sweeps.has("nodes") {
		return errors.New("--durable, --fault and --sweep nodes=... are for nodes that the benchmark starts, not for --nodes with URLs")
	}
	o.load.Nodes = len(o.urls())
	return nil
}

func (o *options) urls() []string { return strings.Split(o.nodes, ",") }

// hide takes all that could be the user and password of a URL out of what was typed, which may be
// no URL.
func hide(typed string) string {
	if i := strings.LastIndex(typed, "@"); i >= 0 {
		return "***" + typed[i:]
	}
	return typed
}
