// Command bench measures what a quorum lock costs, side by side with another
// one on the same servers in the same run.
//
//	go -C bench run . --nodes process
//
// Machines differ and are shared, so that only the ratios mean something.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	nodes := flag.String("nodes", "embedded", "embedded (says nothing of speed), process, docker, or redis:// URLs with commas between them")
	n := flag.Int("n", 5, "number of nodes to start")
	durable := flag.Bool("durable", false, "have process and docker nodes write to disk before they answer, which then is what is measured")
	callers := flag.Int("callers", 64, "concurrent callers, each with a name of its own")
	rounds := flag.Int("rounds", 3, "rounds; every round measures each library once, in rotated order")
	duration := flag.Duration("duration", 2*time.Second, "of one measurement")
	flag.Parse()
	if flag.NArg() > 0 || *callers < 1 || *rounds < 1 || *duration <= 0 {
		return fmt.Errorf("--callers, --rounds and --duration must be above zero, and there are no arguments: %q", flag.Args())
	}

	kind, opts := fleet.Kind(*nodes), fleet.Options{Nodes: *n}
	opts.Volatile = !*durable && (kind == fleet.Process || kind == fleet.Docker)
	if strings.Contains(*nodes, "://") {
		kind, opts = fleet.Addrs, fleet.Options{URLs: strings.Split(*nodes, ",")}
	}
	f, err := fleet.Start(ctx, kind, opts)
	if err != nil {
		return err
	}
	defer f.Close()
	subjects, err := open(f.URLs())
	if err != nil {
		return err
	}
	defer closeAll(subjects)

	results := make([][]result, len(subjects))
	for round := range *rounds {
		for i := range subjects {
			j := (i + round) % len(subjects)
			r, err := measure(ctx, subjects[j], *callers, *duration)
			if err != nil {
				return fmt.Errorf("%s: %w", subjects[j].name, err)
			}
			results[j] = append(results[j], r)
		}
	}
	report(subjects, results, fmt.Sprintf("%d %s nodes, %d callers with names of their own, %d rounds of %v, GOMAXPROCS %d",
		len(f.URLs()), kind, *callers, *rounds, *duration, runtime.GOMAXPROCS(0)))
	return nil
}

// report prints the medians, and their ratios to the first subject's.
func report(subjects []subject, results [][]result, title string) {
	fmt.Println(title)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "library\tcycles/s\tp50\tp99\tCPU/cycle\tallocs/cycle\terrors\tredquorum against it\t")
	var base float64
	for i, s := range subjects {
		rs := results[i]
		rate := median(rs, func(r result) float64 { return r.rate })
		if i == 0 {
			base = rate
		}
		us := func(pick func(result) float64) time.Duration {
			return (time.Duration(median(rs, pick) * float64(time.Second))).Round(100 * time.Nanosecond)
		}
		errors := 0
		for _, r := range rs {
			errors += r.errors
		}
		fmt.Fprintf(w, "%s\t%.0f\t%v\t%v\t%v\t%.1f\t%d\t%.1f x\t\n", s.name, rate,
			us(func(r result) float64 { return r.p50 }), us(func(r result) float64 { return r.p99 }),
			us(func(r result) float64 { return r.cpu }), median(rs, func(r result) float64 { return r.allocs }), errors, base/rate)
	}
	w.Flush()
}

func median(rs []result, pick func(result) float64) float64 {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = pick(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
