package job

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A warden is a second process of this program that kills the command when its time is over, even if
// the first is stopped or dead. On Unix it is also the leader of the command's process group, so the
// group's number is known before the command is started, and is no other group's as long as the warden
// lives. On Windows it has a handle of the command's job object.
//
// It reads orders from a pipe. The pipe ends when the first process dies. The warden then kills
// the command, because its lock is not renewed any more. Before a warden kills it says so on its
// second pipe, so that the first process does not take it for an end of the command's own.
type warden struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	acks   io.ReadCloser
	killed bool // it has said that it kills the command
	reaped bool
}

// wardenArg, as the only argument, makes the program a warden.
const wardenArg = "__warden"

// An order is one of the words below and a number.
type order struct {
	Do uint8
	N  int64
}

// The orders. The last two are not sent: they stand for what a warden finds in the pipe instead.
const (
	setEnd     = iota // until when the command may live, by a clock that both processes have
	setCommand        // the command: on Unix a process, which may leave the group, or zero once it has ended; on Windows the job object
	leaveGroup        // so that the group is seen to be empty when the command's processes have ended
	standDown         // end, and nothing else
	silence           // there is no order at the moment
	widowed           // there will be none any more, because the first process is dead
)

// What a warden says.
const (
	isReady = iota // signals to its group do not end it
	hasLeft        // it is not in the group any more
	kills          // it is about to kill the command, whose time is over
)

// init makes this process a warden if it was started as one. It is not left to main, because the
// program of a test must be a warden, too.
func init() {
	if len(os.Args) == 2 && os.Args[1] == wardenArg {
		os.Exit(wardenMain(os.Stdout))
	}
}

// startWarden starts one and waits until signals to its group do not end it.
func startWarden() (*warden, error) {
	self, err := ownProgram()
	if err != nil {
		return nil, fmt.Errorf("cannot find my own program: %w", err)
	}
	cmd := exec.Command(self, wardenArg)
	cmd.SysProcAttr = wardenProcess
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	acks, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the process that watches over the command: %w", err)
	}
	w := &warden{cmd: cmd, orders: orders, acks: acks}
	if !w.says(isReady) {
		w.dismiss()
		return nil, errors.New("the process that watches over the command does not start")
	}
	return w, nil
}

// allow lets the command live until then, and no longer. The clocks of the two processes have different
// origins. Theirs is read first, so a pause between the readings makes the time shorter, not longer.
func (w *warden) allow(until clock.Instant) {
	now := machineTime()
	w.order(setEnd, int64(now+until.Sub(clock.System.Now())))
}

func (w *warden) setCommand(c int) { w.order(setCommand, int64(c)) }

// dismiss ends the warden, and nothing else. It may be called twice.
func (w *warden) dismiss() {
	if w.reaped {
		return
	}
	w.reaped = true
	w.order(standDown, 0)
	w.orders.Close()
	w.cmd.Wait() // it may have been killed with its group
}

// order sends an order. It cannot fail but for a warden that was killed with its group.
func (w *warden) order(do uint8, n int64) {
	w.wake()
	binary.Write(w.orders, binary.BigEndian, order{do, n})
}

// says waits for the warden's next word, and reports whether it is this one.
func (w *warden) says(want byte) bool {
	var word [1]byte
	n, _ := w.acks.Read(word[:])
	w.killed = w.killed || n == 1 && word[0] == kills
	return n == 1 && word[0] == want
}

// wardenMain runs the warden, and returns its exit code.
func wardenMain(acks io.Writer) int {
	if !startedAsWarden() {
		fmt.Fprintln(os.Stderr, "redlock: "+wardenArg+" is for redlock's own use")
		return 64 // EX_USAGE
	}
	runtime.LockOSThread()
	settleAsWarden()
	acks.Write([]byte{isReady})

	w := watch{until: math.MaxInt64}
	for {
		now := machineTime()
		switch w.obey(nextOrder(syscall.Stdin, w.patience(now)), now) {
		case toKill:
			acks.Write([]byte{kills})
			killCommand(w.command)
			return 0
		case toLeave:
			if !leaveCommand() {
				return 0 // the command is not watched for that moment, but the group can become empty
			}
			acks.Write([]byte{hasLeft})
		case toEnd:
			return 0
		}
	}
}

// A watch is what a warden knows. It decides, and does nothing.
type watch struct {
	until   time.Duration // when the command must be dead, on machineTime
	command int
}

// What a warden does.
type action int

const (
	toWait action = iota
	toKill
	toLeave
	toEnd
)

// patience returns how long the warden waits for the next order. The system's timeouts stand still
// while the machine sleeps, so it looks at the clock now and then.
func (w *watch) patience(now time.Duration) time.Duration {
	return min(max(0, w.until-now), 250*time.Millisecond)
}

// obey returns what is to be done upon an order. now is from before the warden looked for it, so
// that silence after the end means that no order was waiting then: the warden may have been late,
// and an order that moves the end comes first.
func (w *watch) obey(o order, now time.Duration) action {
	switch o.Do {
	case setEnd:
		w.until = time.Duration(o.N)
	case setCommand:
		w.command = int(o.N)
	case leaveGroup:
		return toLeave
	case standDown:
		return toEnd
	case widowed:
		return toKill
	case silence:
		if now >= w.until {
			return toKill
		}
	}
	return toWait
}

// orderSize is how many bytes an order has in the pipe.
const orderSize = 1 + 8

func orderOf(text [orderSize]byte) order {
	return order{Do: text[0], N: int64(binary.BigEndian.Uint64(text[1:]))}
}
