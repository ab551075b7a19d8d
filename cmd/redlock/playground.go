package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
)

// A playground breaks the servers of redlock nodes, by commands that it reads.
type playground struct {
	fleet  fleet.Fleet
	clocks []fleet.Clock // one for each server; nil: they cannot be set

	mu   sync.Mutex // guards the fields below
	out  io.Writer
	pids []int // process IDs of the servers at their first start, if they are processes
	runs bool  // all servers have been started
}

// started records the process of a server, and prints it unless it is the first start.
func (p *playground) started(i, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs {
		fmt.Fprintf(p.out, "%d: process %d\n", i+1, pid)
	} else {
		p.pids[i] = pid
	}
}

// begin takes the servers. All of them must have been started.
func (p *playground) begin(f fleet.Fleet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fleet, p.runs = f, true
}

const playgroundHelp = `kill N       ends a server
restart N    starts it again, with its data
lose N       starts it again without its data: it has no vote for one TTL
hang N       makes it answer nothing
wake N       ends that
clock N +1m  sets its clock (kind process, with libfaketime)
help
`

func (p *playground) print(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format, args...)
}

// read carries out commands until the input ends.
func (p *playground) read(ctx context.Context, in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 0 {
			p.do(ctx, words)
		}
	}
}

// A deed is one command on a server, and the text of its result.
type deed struct {
	do     func(ctx context.Context, i int) error
	result string
}

// do carries out one command, and prints its result.
func (p *playground) do(ctx context.Context, words []string) {
	verb, rest := words[0], words[1:]
	restart := func(m fleet.Memory) func(context.Context, int) error {
		return func(ctx context.Context, i int) error { return p.fleet.Restart(ctx, i, m) }
	}
	deeds := map[string]deed{
		"kill": {p.fleet.Kill, "killed"}, "restart": {restart(fleet.Kept), "started, with its data"}, "lose": {restart(fleet.Lost), "started, without its data"},
		"hang": {p.fleet.Pause, "hangs"}, "wake": {p.fleet.Resume, "answers again"},
	}
	if verb == "clock" && len(rest) > 0 {
		ahead := strings.Join(rest[1:], "")
		rest = rest[:1]
		deeds[verb] = deed{func(_ context.Context, i int) error { return p.setClock(i, ahead) }, "its clock is set to " + ahead}
	}
	d, n := deeds[verb], len(p.fleet.URLs())
	i, err := 0, error(nil)
	if len(rest) == 1 {
		i, err = strconv.Atoi(rest[0])
	}
	switch {
	case verb == "help":
		p.print(playgroundHelp)
	case d.do == nil && verb != "clock":
		p.print("%q is not a command; help lists the commands\n", verb)
	case err != nil || i < 1 || i > n:
		p.print("%s needs the number of a server, from 1 to %d: %s 1\n", verb, n, verb)
	default:
		for err = d.do(ctx, i-1); errors.Unwrap(err) != nil; {
			err = errors.Unwrap(err) // removes the number and kind that package fleet puts in front
		}
		if err != nil {
			d.result = err.Error()
		}
		p.print("%d: %s\n", i, d.result)
	}
}

func (p *playground) setClock(i int, by string) error {
	if p.clocks == nil {
		return errors.New("its clock cannot be set: that needs --kind process, and libfaketime installed")
	}
	ahead, err := time.ParseDuration(by)
	if err != nil {
		return fmt.Errorf("the time must be a duration, such as +1m or -30s: clock %d +1m", i+1)
	}
	return p.clocks[i].Set(ahead)
}

// newClocks returns a clock for each of n servers, in dir.
func newClocks(dir string, n int) (clocks []fleet.Clock, err error) {
	for i := range n {
		c := fleet.Clock(filepath.Join(dir, strconv.Itoa(i)))
		clocks, err = append(clocks, c), errors.Join(err, c.Set(0))
	}
	return clocks, err
}
