package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A runner takes each lock by a program, which ends with it and speaks chaos/PROTOCOL.md: "redlock run",
// or one of the user.
type runner struct {
	Config
	command func(demand) []string
}

// byRun takes a lock by "redlock run". The command under it answers for as long as it runs.
func (c Config) byRun(d demand) []string {
	return []string{c.Run, "run", "--fenced", fmt.Sprint("--fair=", d.Fair), "--ttl", c.TTL.String(), "--wait", (2 * c.TTL).String(),
		"--node", strings.Join(c.URLs, ","), d.Name, "--", "sh", "-c", `echo $REDLOCK_FENCE; exec cat`}
}

// byProgram takes a lock by a program of the user.
func (c Config) byProgram(d demand) []string {
	ttl := c.TTL.Milliseconds()
	return append([]string{"sh", "-c", c.Other + ` "$@"`, "sh", d.Name, fmt.Sprint(ttl), fmt.Sprint(2 * ttl)}, c.addrs()...)
}

func (runner) Close() error { return nil }

// errNoProgram says that there is no such program, and so no client.
var errNoProgram = errors.New("the program cannot be run")

// acquire starts a program. It waits for the lock to its end, whatever becomes of the context.
func (from runner) acquire(_ context.Context, d demand) (lock, error) {
	command := from.command(d)
	l := &ran{cmd: exec.Command(command[0], command[1:]...)}
	l.cmd.Stderr = &l.said
	in, out, err := startPiped(l.cmd)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoProgram, err)
	}
	l.in, l.out = in, bufio.NewScanner(out)
	if !l.out.Scan() {
		err := l.stop()
		if l.cmd.ProcessState.ExitCode() == 127 {
			return nil, fmt.Errorf("%w: %q: %s", errNoProgram, from.Other, &l.said)
		}
		return nil, refusal(fmt.Sprintf("%v: %s", err, &l.said))
	}
	if l.fence, err = strconv.ParseInt(cmp.Or(l.out.Text(), "0"), 10, 64); err != nil {
		return nil, errors.Join(errNoProgram, err, l.stop())
	}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l, nil
}

// A refusal is why there is no lock. What stands before the first colon is counted.
type refusal string

func (r refusal) Error() string { return string(r) }

// A ran is a lock of a program.
type ran struct {
	grant
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	said bytes.Buffer
}

// Remaining asks the program for how long the lock is held, from the beginning of the call on.
func (l *ran) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	io.WriteString(l.in, "\n") // an error means that there will be no answer
	answered := l.out.Scan()
	if answered && l.out.Text() == "" {
		return thisMoment
	}
	ms, err := strconv.Atoi(l.out.Text())
	if !answered || err != nil {
		l.end(fmt.Errorf("%w: the program has ended, or says %q", redlock.ErrLost, l.out.Text()))
	}
	return time.Duration(ms) * time.Millisecond
}

func (l *ran) Release(context.Context) error {
	defer l.end(redlock.ErrReleased)
	return l.stop()
}

// stop ends the program's input, and waits for it.
func (l *ran) stop() error {
	l.in.Close()
	return l.cmd.Wait()
}
