package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
	"github.com/redquorum/redquorum/redlock"
)

const holdHelp = `Holds the lock NAME for a program in any language that starts redlock as a child process, with
pipes to its input and output. redlock writes JSON, an object a line:

  {"event":"held","name":"nightly","owner":"web-3","fence":7,"remaining_ms":7300,"until_ms":507300}
  {"event":"renewed","remaining_ms":7400,"until_ms":510700}
  {"event":"warning","remaining_ms":4000,"until_ms":510700}
  {"event":"stop","remaining_ms":1400,"until_ms":510700,"reason":"..."}

"held" reports that the program has the lock, and "renewed" comes every third of the TTL. "warning"
comes when renewals fail and half of the TTL is left (--ttl 4s or more): save the work,
which may continue. "stop" means that the work must end: the lock is lost or cannot be renewed in
time, or redlock got a signal. Skip other events: later versions may have more.

The work may continue until until_ms on the clock of the machine. Then it must have ended, even
without a "stop", because redlock may have been killed or stopped. Compare the clock before each
step. If the output ends, stop at once.

The clock counts milliseconds: CLOCK_BOOTTIME on Linux (also /proc/uptime), CLOCK_MONOTONIC on
macOS and BSD, GetTickCount64 on Windows. remaining_ms is the time left when redlock wrote the line.
A program that was stopped may read a line late, so do not count remaining_ms from the reading. If
until_ms is further away than remaining_ms, the program reads another clock: stop.

To release the lock, end the work and close redlock's standard input. It is closed, too, if the
program dies, unless a child has inherited the pipe, which most languages prevent.

"fence" is present with --fenced, "permit" with --permits, "permits" with --weight, and with --and
"names" has all names.

Exit codes:
  0      standard input ended while the lock was held, and the lock is released
  79     the lock was lost, or could not be renewed in time
  128+n  signal n ended it
  75     another client holds the lock (-E sets another code)
  69     no quorum: too few servers answered
  1      anything else, such as standard input that ended before the lock was granted
` + wrongCodes

// A holdCommand is one run of "redlock hold".
type holdCommand struct {
	*acquisition

	input   chan struct{} // closed when standard input has ended
	patient bool          // a program has time to end before its lock is released; a person at a terminal does not
	output  *holdOutput
	renewed renewals
}

// A holdLine is one line of the output.
type holdLine struct {
	Event     string   `json:"event"` // held, renewed, warning or stop
	Name      string   `json:"name,omitempty"`
	Names     []string `json:"names,omitempty"`
	Owner     string   `json:"owner,omitempty"`
	Fence     *int64   `json:"fence,omitempty"`
	Permit    *int     `json:"permit,omitempty"`
	Permits   []int    `json:"permits,omitempty"`
	Remaining int64    `json:"remaining_ms"`
	Until     int64    `json:"until_ms"` // by job.MachineTime
	Reason    string   `json:"reason,omitempty"`
}

func newHold() *cobra.Command {
	c := &cobra.Command{
		Use:   "hold [flags] NAME",
		Short: "Hold a lock for a program in any language, until standard input ends",
		Long:  holdHelp,
		Example: `  # a program in Python, Node, PHP, Ruby or sh: see examples/hold
  subprocess.Popen(["redlock", "hold", "--fenced", "nightly"], stdin=PIPE, stdout=PIPE)
  redlock hold nightly      # by hand: Ctrl-D releases it`,
		Args: oneArgument("the name of the lock"),
	}
	h := &holdCommand{acquisition: acquisitionFlags(c, "stop-within", "how long the work has to end after \"stop\", when the lock cannot be renewed (default: TTL/4)")}
	c.RunE = func(c *cobra.Command, args []string) error {
		names := append([]string{args[0]}, h.and...)
		if err := h.check(names); err != nil {
			return err
		}
		return h.run(c, names)
	}
	return c
}

var errInputEnded = errors.New("standard input ended before the lock was granted: keep it open until the lock may be released")

// run takes the lock and holds it until standard input ends.
func (h *holdCommand) run(c *cobra.Command, names []string) error {
	reread.ReapOrphans()
	// If the program has ended, SIGPIPE must not end this process, which has a lock to release.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	h.input, h.patient = make(chan struct{}), !plain.IsTerminal(c.InOrStdin())
	go func() { // ends with the process if the input does not, because a read of a pipe cannot be cancelled
		io.Copy(io.Discard, c.InOrStdin())
		close(h.input)
		cancel(errInputEnded)
	}()
	h.renewed, h.warned = make(renewals, 1), make(chan struct{}, 1)
	lock, stop, err := h.take(ctx, names, redlock.Observe(h.renewed))
	switch {
	case err != nil && c.Context().Err() == nil && context.Cause(ctx) == errInputEnded:
		return &exitError{code: exitFailed, err: errInputEnded}
	case err != nil:
		return err
	}
	defer stop()
	h.output = newHoldOutput(c.OutOrStdout())
	err = h.hold(c.Context(), lock)
	released := lock.Release(context.WithoutCancel(ctx))
	h.output.end()
	switch {
	case err != nil:
		return err
	case errors.Is(released, redlock.ErrLost):
		return &exitError{code: exitLost, err: fmt.Errorf("%w; the work had not ended by then", released)}
	case released != nil && !errors.Is(released, redlock.ErrSameServer): // reported already
		h.warn(fmt.Sprintf("%v; the lock expires within %v", released, h.ttl)) // only the release failed; the work was protected
	}
	return nil
}

// hold reports the state of the lock to the program, and returns when the lock may be released: without an
// error if standard input has ended.
func (h *holdCommand) hold(ctx context.Context, lock *redlock.Lock) error {
	due := make(chan struct{}, 1)
	timer := clock.System.AfterFunc(h.left(lock), func() {
		select {
		case due <- struct{}{}:
		default:
		}
	})
	defer timer.Stop()
	h.output.tell(h.first(lock))
	for {
		select {
		case <-h.input:
			return nil
		case <-lock.Context().Done():
			return h.lost(context.Cause(lock.Context()))
		case <-h.renewed:
			timer.Reset(h.left(lock))
			h.output.tell(h.line("renewed", lock))
		case <-h.warned:
			if lock.Remaining() <= h.ttl/2 { // no renewal arrived since the warning
				h.output.tell(h.line("warning", lock))
			}
		case <-due:
			if left := h.left(lock); left > 0 { // a renewal arrived since
				timer.Reset(left)
				continue
			}
			err := fmt.Errorf("%q: %w: not renewed in time", lock.Name(), redlock.ErrLost)
			return h.outlast(lock, &exitError{code: exitLost, err: h.told.Because(err)})
		case err := <-h.output.broken: // the program cannot learn of a loss
			return h.outlast(lock, &exitError{code: exitFailed, err: fmt.Errorf("output: %w", err)})
		case <-ctx.Done():
			end := &exitError{code: exitCode(ctx, ctx.Err()), err: context.Cause(ctx)}
			if !h.patient {
				return end
			}
			return h.outlast(lock, end) // the program gets a signal from the terminal, too
		}
	}
}

// lost reports a lock that another client may have by now.
func (h *holdCommand) lost(why error) error {
	h.output.tell(holdLine{Event: "stop", Reason: plain.OneLine(why.Error())})
	return &exitError{code: exitLost, err: why}
}

// outlast asks the program to stop, and waits until the input ends or the program's time is up.
// Until then no other client can have the lock. It returns end.
func (h *holdCommand) outlast(lock *redlock.Lock, end *exitError) error {
	line := h.line("stop", lock)
	line.Reason = plain.OneLine(end.Error())
	over := make(chan struct{})
	timer := clock.System.AfterFunc(time.Duration(line.Remaining)*time.Millisecond, func() { close(over) })
	defer timer.Stop()
	h.output.tell(line)
	select {
	case <-h.input:
	case <-over:
	case <-lock.Context().Done():
		return h.lost(context.Cause(lock.Context()))
	}
	return end
}

// first returns the line about a lock that has been taken.
func (h *holdCommand) first(lock *redlock.Lock) holdLine {
	line := h.line("held", lock)
	line.Name, line.Owner = lock.Name(), h.owner
	if all := lock.Names(); len(all) > 1 {
		line.Name, line.Names = "", all
	}
	if h.fenced {
		line.Fence = new(lock.Fence())
	}
	switch {
	case h.weight > 1:
		line.Permits = lock.Permits()
	case h.permits > 1:
		line.Permit = new(lock.Permit())
	}
	return line
}

// untilEnd returns the time for which the work may continue. It leaves a part of the validity for a
// line that is read late, and for the end of the work.
func (h *holdCommand) untilEnd(lock *redlock.Lock) time.Duration {
	return max(0, lock.Remaining()-job.Margin(h.ttl))
}

// line returns a line with the end of the work. It reads the clock before the lock, so a pause in
// between makes the end earlier, not later. A later pause does no harm, because the program reads
// the same clock.
func (h *holdCommand) line(event string, lock *redlock.Lock) holdLine {
	now := job.MachineTime()
	left := h.untilEnd(lock)
	return holdLine{Event: event, Remaining: left.Milliseconds(), Until: now.Milliseconds() + left.Milliseconds()}
}

// left returns the time until the program must be asked to stop, unless the lock is renewed.
func (h *holdCommand) left(lock *redlock.Lock) time.Duration {
	return max(0, h.untilEnd(lock)-h.grace)
}

// renewals is an Observer with room for one unreported renewal.
type renewals chan struct{}

// Observe implements redlock.Observer.
func (r renewals) Observe(e redlock.Event) {
	if e.Kind == redlock.EventExtended {
		select {
		case r <- struct{}{}:
		default:
		}
	}
}

// A holdOutput writes lines in a goroutine of its own: otherwise a program that does not read would
// prevent redlock from noticing the end of the lock.
type holdOutput struct {
	lines   chan holdLine
	broken  chan error // error of a line that could not be written
	written chan struct{}
}

const (
	// unread is the number of lines that are kept for a program that does not read. Later lines are
	// dropped.
	unread = 64
	// lastLines is the time that end waits for the program to read.
	lastLines = 200 * time.Millisecond
)

func newHoldOutput(out io.Writer) *holdOutput {
	o := &holdOutput{lines: make(chan holdLine, unread), broken: make(chan error, 1), written: make(chan struct{})}
	go func() {
		defer close(o.written)
		to := json.NewEncoder(out)
		for line := range o.lines {
			if err := to.Encode(line); err != nil {
				o.broken <- err
				return
			}
		}
	}()
	return o
}

func (o *holdOutput) tell(line holdLine) {
	select {
	case o.lines <- line:
	default:
	}
}

// end is called after the last line. The end of the output means the same as "stop".
func (o *holdOutput) end() {
	close(o.lines)
	select {
	case <-o.written:
	case <-time.After(lastLines):
	}
}
