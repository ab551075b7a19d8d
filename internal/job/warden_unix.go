//go:build unix

package job

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/clock"
)

// A warden is a second process of this program that ends the command's process group when its
// time is over, even if the first is stopped or dead. It is also the leader of that group, so
// the group's number is known before the command is started, and is no other group's as long as
// the warden lives.
//
// It reads orders from a pipe. The pipe ends when the first process dies. The warden then kills
// the command, because its lock is not renewed any more.
type warden struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	acks   io.ReadCloser
	reaped bool
}

// wardenArg, as the only argument, makes the program a warden.
const wardenArg = "__warden"

// An order is one of the words below and a number.
type order struct {
	Do uint8
	N  int64
}

// The orders.
const (
	setEnd     = iota // until when the command may live, by a clock that both processes have
	setCommand        // the command, which may leave the group; zero once it has ended
	leaveGroup        // so that the group is seen to be empty when the command's processes have ended
	standDown         // end, and nothing else
)

// init makes this process a warden if it was started as one. It is not left to main, because the
// program of a test must be a warden, too.
func init() {
	if len(os.Args) == 2 && os.Args[1] == wardenArg {
		os.Exit(wardenMain(os.Stdin, os.Stdout))
	}
}

// startWarden starts one and waits until signals to its group do not end it.
func startWarden() (*warden, error) {
	self := "/proc/self/exe" // is there even if the file was replaced meanwhile
	if _, err := os.Stat(self); err != nil {
		if self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("cannot find my own program: %w", err)
		}
	}
	cmd := exec.Command(self, wardenArg)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
	if !w.acknowledged() {
		w.dismiss()
		return nil, errors.New("the process that watches over the command does not start")
	}
	return w, nil
}

// group is the number of the command's process group.
func (w *warden) group() int { return w.cmd.Process.Pid }

// allow lets the group live for so long from now, and no longer.
func (w *warden) allow(d time.Duration) {
	w.order(setEnd, int64(machineTime()+d))
}

// setCommand sets which process the command is; zero, that it has ended.
func (w *warden) setCommand(pid int) { w.order(setCommand, int64(pid)) }

// leave has the warden leave the group, and reports whether it did. If it did not, it has ended.
func (w *warden) leave() bool {
	w.order(leaveGroup, 0)
	return w.acknowledged()
}

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

// order sends an order. It cannot fail but for a warden that was killed with its group. A warden
// that was stopped with its group is continued first.
func (w *warden) order(do uint8, n int64) {
	w.cmd.Process.Signal(unix.SIGCONT)
	binary.Write(w.orders, binary.BigEndian, order{do, n})
}

func (w *warden) acknowledged() bool {
	n, _ := w.acks.Read(make([]byte, 1))
	return n == 1
}

// wardenMain runs the warden, and returns its exit code.
func wardenMain(orders io.Reader, acks io.Writer) int {
	if unix.Getpgrp() != os.Getpid() {
		fmt.Fprintln(os.Stderr, "redlock: "+wardenArg+" is for redlock's own use")
		return 64 // EX_USAGE
	}
	signal.Ignore(append(groupSignals, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU)...)
	acks.Write([]byte{1})

	due := make(chan struct{}, 1)
	timer := clock.System.AfterFunc(time.Hour, func() { due <- struct{}{} })
	timer.Stop()
	inbox := make(chan order)
	go receiveOrders(orders, inbox)
	group, command := os.Getpid(), 0
	for {
		select {
		case <-due:
			signalJob(group, command, unix.SIGKILL)
			return 0 // has been killed itself, unless it has left the group
		case o, alive := <-inbox:
			switch {
			case !alive:
				signalJob(group, command, unix.SIGKILL)
				return 0
			case o.Do == setEnd:
				timer.Reset(max(0, time.Duration(o.N)-machineTime()))
			case o.Do == setCommand:
				command = int(o.N)
			case o.Do == leaveGroup:
				// The group 0 is one outside of our PID namespace, which cannot be joined:
				// setpgid(2) means our own by it.
				parent, err := unix.Getpgid(os.Getppid())
				if err != nil || parent == 0 || unix.Setpgid(0, parent) != nil {
					return 0 // the command is not watched for that moment, but the group can become empty
				}
				acks.Write([]byte{1})
			case o.Do == standDown:
				return 0
			}
		}
	}
}

// receiveOrders closes the inbox when the process that gives the orders has ended.
func receiveOrders(from io.Reader, inbox chan<- order) {
	defer close(inbox)
	for {
		var o order
		if err := binary.Read(from, binary.BigEndian, &o); err != nil {
			return
		}
		inbox <- o
	}
}

// signalJob sends a signal to the command's group, and to the command if it is in another one:
// timeout(1), setsid(1) and shells with job control make a group of their own. The group comes
// last, because the caller may be in it.
func signalJob(group, command int, s syscall.Signal) {
	if command != 0 {
		switch own, err := unix.Getpgid(command); {
		case err != nil || own == group:
		case own == command:
			unix.Kill(-own, s)
		default: // others are there, too
			unix.Kill(command, s)
		}
	}
	unix.Kill(-group, s)
}

// machineTime returns a reading of a clock that all processes of this machine share and that
// cannot be set.
func machineTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(machineClock, &ts); err != nil {
		panic("redlock: this machine has no monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
