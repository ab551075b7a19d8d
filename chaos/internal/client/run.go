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

// A runner takes each lock through a program that ends with the lock and speaks chaos/PROTOCOL.md:
// "redlock run", or a program of the user.
type runner struct {
	Config
	command func(demand) []string
}

// byRun takes a lock through "redlock run". The command under the lock answers until it ends.
func (c Config) byRun(d demand) []string {
	return []string{c.Run, "run", "--fenced", fmt.Sprint("--fair=", d.Fair), "--ttl", c.TTL.String(), "--wait", (2 * c.TTL).String(),
		"--node", strings.Join(c.URLs, ","), d.Name, "--", "sh", "-c", `echo $REDLOCK_FENCE; exec cat`}
}

// byProgram takes a lock through a program of the user.
func (c Config) byProgram(d demand) []string {
	ttl := c.TTL.Milliseconds()
	return append([]string{"sh", "-c", c.Other + ` "$@"`, "sh", d.Name, fmt.Sprint(ttl), fmt.Sprint(2 * ttl)}, c.addrs()...)
}

func (runner) Close() error { return nil }

// errNoProgram means that the program does not exist, so the client cannot run.
var errNoProgram = errors.New("the program cannot be run")

// acquire starts a program. It waits for the lock until the program ends, even if the context ends.
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

// A refusal is the reason a program got no lock. The report counts the text before the first colon.
type refusal string

func (r refusal) Error() string { return string(r) }

// A ran is a lock from a program.
type ran struct {
	grant
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	said bytes.Buffer
}

// Remaining asks the program for the validity of the lock, counted from the start of the call.
func (l *ran) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	io.WriteString(l.in, "\n") // after an error no answer follows
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
