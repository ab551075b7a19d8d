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
	"strconv"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A warden is a second process of this program that kills the command after its deadline, even if
// the first process is stopped or dead. On Unix it is also the leader of the command's process
// group. Therefore the number of the group is known before the command starts, and no other group
// gets it as long as the warden lives. On Windows it has a handle of the command's job object.
//
// It reads orders from a pipe. The pipe ends when the first process dies. The warden then kills the
// command, because its lock is no longer renewed. Before a warden kills, it writes a message to its
// second pipe, so that the first process can distinguish a killed command from one that has exited.
// That pipe ends when the warden dies; the first process then starts another warden (see
// replaceWarden).
type warden struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	words  <-chan byte // messages; closed when the warden has ended
	killed bool        // the warden has announced that it kills the command
	reaped bool
}

// wardenArg, as the first argument, makes the program a warden. The number of the process group
// follows, unless the warden leads its own group.
const wardenArg = "__warden"

// An order is one of the constants below and a number.
type order struct {
	Do uint8
	N  int64
}

// The orders. The last two are not sent: they mean an empty pipe and an ended pipe.
const (
	setEnd     = iota // deadline of the command, by a clock shared by both processes
	setCommand        // the command: on Unix a process, which may leave the group, or zero after its end; on Windows the job object
	leaveGroup        // leave the group, so that it is empty when the command's processes have ended
	silence           // currently no order
	widowed           // no more orders, because the first process is dead
)

// The messages of a warden.
const (
	isReady = iota // signals to its group no longer end it
	knows          // it knows the command, and all earlier orders
	hasLeft        // it has left the group
	kills          // it is about to kill the command, whose deadline has passed
)

// patience is the time for which this process waits for a message that is not essential.
const patience = time.Second

// init makes this process a warden or a gate if it was started as one. main cannot do this, because
// the program of a test must become both, too.
func init() {
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case wardenArg:
		os.Exit(wardenMain(os.Stdout))
	case gateArg:
		os.Exit(gateMain(os.Args[2:]))
	}
}

// startWarden starts a warden and waits until signals to its group no longer end it, for at most
// limit. The warden joins the process group of that number, or leads its own group if the number is
// zero. The first orders are in its pipe before it starts, so a pause of this process cannot delay
// them.
func startWarden(group int, limit time.Duration, first ...order) (*warden, error) {
	self, err := ownProgram()
	if err != nil {
		return nil, fmt.Errorf("cannot find the program file of redlock: %w", err)
	}
	cmd := exec.Command(self, wardenArg)
	if group != 0 {
		cmd.Args = append(cmd.Args, strconv.Itoa(group))
	}
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, wardenProcess(group)
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	acks, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	for _, o := range first {
		binary.Write(orders, binary.BigEndian, o)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the process that watches the command: %w", err)
	}
	words := make(chan byte, 8) // room for more messages than a warden sends
	go func() {
		defer close(words)
		var word [1]byte
		for {
			if _, err := io.ReadFull(acks, word[:]); err != nil {
				return
			}
			words <- word[0]
		}
	}()
	w := &warden{cmd: cmd, orders: orders, words: words}
	if !w.says(isReady, limit) {
		w.dismiss()
		return nil, errors.New("the process that watches the command does not start")
	}
	return w, nil
}

// onMachine converts an instant of this process to the clock of the machine. It reads that clock
// first, so that a pause between the readings makes the time shorter, not longer.
func onMachine(at clock.Instant) time.Duration {
	now := MachineTime()
	return now + at.Sub(clock.System.Now())
}

// allow sets the deadline of the command.
func (w *warden) allow(until clock.Instant) { w.send(endAt(until)) }

// endAt returns the order that sets the deadline of the command.
func endAt(until clock.Instant) order { return order{setEnd, int64(onMachine(until))} }

func (w *warden) setCommand(c int) { w.send(order{setCommand, int64(c)}) }

// ended reports whether the warden has died.
func (w *warden) ended() bool {
	select {
	case word, more := <-w.words:
		w.hear(word, more)
		return !more
	default:
		return false
	}
}

// dismiss ends only the warden. It may be called twice.
func (w *warden) dismiss() {
	if w.reaped {
		return
	}
	w.reaped = true
	w.cmd.Process.Kill() // ends only this process, even if it is stopped
	w.cmd.Wait()         // fails if another goroutine has waited for it, but closes the pipes
	for range w.words {  // until its reader has ended
	}
}

// send sends an order. It fails only if the warden has died. The end of the message channel signals
// that.
func (w *warden) send(o order) {
	w.wake()
	binary.Write(w.orders, binary.BigEndian, o)
}

// says waits for this message of the warden, for at most limit, and reports whether it arrived.
func (w *warden) says(want byte, limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		select {
		case word, more := <-w.words:
			w.hear(word, more)
			if !more || word == want {
				return more
			}
		case <-late.C:
			return false
		}
	}
}

// hear records a message of the warden.
func (w *warden) hear(word byte, more bool) { w.killed = w.killed || more && word == kills }

// wardenMain runs the warden, and returns its exit code.
func wardenMain(acks io.Writer) int {
	if !startedAsWarden() {
		return forOwnUse(wardenArg)
	}
	runtime.LockOSThread()
	settleAsWarden()
	acks.Write([]byte{isReady})

	w := watch{until: math.MaxInt64}
	for {
		now := MachineTime()
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
		case toAnswer:
			acks.Write([]byte{knows})
		}
	}
}

// forOwnUse refuses an argument passed by a person, and returns the exit code.
func forOwnUse(arg string) int {
	fmt.Fprintln(os.Stderr, "redlock: "+arg+" is for redlock's own use")
	return 64 // EX_USAGE
}

// A watch is the state of a warden. It makes decisions and has no effects.
type watch struct {
	until   time.Duration // deadline of the command, by MachineTime
	command int
}

// Actions of a warden.
type action int

const (
	toWait action = iota
	toKill
	toLeave
	toAnswer
)

// patience returns the longest wait for the next order. The system's timeouts stand still while the
// machine sleeps, so the warden reads the clock from time to time.
func (w *watch) patience(now time.Duration) time.Duration {
	return min(max(0, w.until-now), 250*time.Millisecond)
}

// obey returns the action for an order. now was read before the warden checked for the order. If it
// finds silence after the deadline, no order was waiting at that time: the warden may have been
// late, and an order that moves the deadline comes first.
func (w *watch) obey(o order, now time.Duration) action {
	switch o.Do {
	case setEnd:
		w.until = time.Duration(o.N)
	case setCommand:
		w.command = int(o.N)
		return toAnswer
	case leaveGroup:
		return toLeave
	case widowed:
		return toKill
	case silence:
		if now >= w.until {
			return toKill
		}
	}
	return toWait
}

// orderSize is the size of an order in the pipe, in bytes.
const orderSize = 1 + 8

func orderOf(text [orderSize]byte) order {
	return order{Do: text[0], N: int64(binary.BigEndian.Uint64(text[1:]))}
}
