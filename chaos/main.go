package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx))
}

// Exit codes.
const (
	violated = 1
	unable   = 2
)

func run(ctx context.Context) (code int) {
	c, is, err := client.FromEnv()
	if is && err == nil {
		err = client.Run(c, os.Stdin, os.Stdout)
	}
	if !is {
		code, err = compete(ctx, os.Args[1:], os.Stdout)
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return unable
	}
	return code
}

// compete plays one scenario after the other.
func compete(ctx context.Context, args []string, out io.Writer) (code int, err error) {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return 0, err
	}
	if o.judge != "" {
		return judgeFile(o.judge, out)
	}
	fmt.Fprintf(out, "seed %d, %v of faults in each scenario\n", o.seed, o.share().Round(time.Millisecond))
	for _, s := range o.scenarios {
		t := trial{Scenario: s, options: o}
		if o.plan {
			fmt.Fprintf(out, "\n%s: %s\n%v", s.Name, s.About, s.Plan(t.setting()))
			continue
		}
		began := time.Now()
		v, file, err := t.run(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.Name, err)
		}
		report(out, s.Name, time.Since(began), v)
		if !v.OK() {
			code = violated
			fmt.Fprintf(out, "  history   %s\n  replay    %s\n", file, t.replay())
		}
		if ctx.Err() != nil {
			fmt.Fprintln(out, "interrupted")
			break
		}
	}
	return code, nil
}

func judgeFile(path string, out io.Writer) (code int, err error) {
	v, err := judge(path, nil)
	if err != nil {
		return 0, err
	}
	report(out, path, 0, v)
	if !v.OK() {
		code = violated
	}
	return code, nil
}
