package client

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A runner takes locks by "redlock run". The command under each of them answers for as long as it runs.
type runner struct{ Config }

func (runner) Close() error { return nil }

// acquire starts a command under a lock. It waits for the lock to its end, whatever becomes of the context.
func (from runner) acquire(_ context.Context, d demand) (lock, error) {
	args := []string{"run", "--fenced", "--ttl", from.TTL.String(), "--wait", (2 * from.TTL).String(), "--node", strings.Join(from.URLs, ",")}
	if d.Fair {
		args = append(args, "--fair")
	}
	l := &ran{cmd: exec.Command(from.Run, append(args, d.Name, "--", "sh", "-c", `echo $REDLOCK_FENCE; exec cat`)...)}
	l.cmd.Stderr = &l.said
	in, out, err := startPiped(l.cmd)
	if err != nil {
		return nil, err
	}
	l.in, l.out = in, bufio.NewScanner(out)
	if !l.out.Scan() {
		return nil, refusal(fmt.Sprintf("redlock run: %v: %s", l.end(), &l.said))
	}
	if l.fence, err = strconv.ParseInt(l.out.Text(), 10, 64); err != nil {
		return nil, err
	}
	l.ctx, l.grant.end = context.WithCancelCause(context.Background())
	return l, nil
}

// A ran is a lock of "redlock run".
type ran struct {
	grant
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	said bytes.Buffer
}

// Remaining asks the command whether it runs, and so from the beginning of the call on.
func (l *ran) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	io.WriteString(l.in, "held\n") // an error means that there will be no answer
	if !l.out.Scan() {
		l.grant.end(fmt.Errorf("%w: the command was ended", redlock.ErrLost))
		return 0
	}
	return thisMoment
}

func (l *ran) Release(context.Context) error {
	defer l.grant.end(redlock.ErrReleased)
	return l.end()
}

// end lets the command end, and waits for redlock.
func (l *ran) end() error {
	l.in.Close()
	return l.cmd.Wait()
}
