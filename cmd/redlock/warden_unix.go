//go:build unix

package main

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

// A warden is a second process of redlock that ends the command's process group
// when its time is over, even if the first is stopped or dead. It is also the
// leader of that group: so the group's number is known before the command is
// started, and belongs to nobody else as long as the warden lives.
//
// It reads orders from a pipe, each a number: until when the group may live, by
// a clock that both processes have, or one of those below. The end of the pipe
// without order is the death of redlock: then the group is asked to end, and
// killed when its time is over.
type warden struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	acks   io.ReadCloser
	reaped bool
}

const (
	wardenArg = "__warden" // instead of a command: be a warden

	standDown = 0  // leave; the group is empty
	stepAside = -1 // leave the group, so that one can see whether it is empty
)

// A warden is this program, and the program of a test is one as well.
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
	w.order(int64(machineTime() + max(d, 1)))
}

// aside has the warden leave the group, and reports whether it did. If it did not
// it has ended.
func (w *warden) aside() bool {
	w.order(stepAside)
	return w.acknowledged()
}

// dismiss ends the warden, and nothing else. It may be called twice.
func (w *warden) dismiss() {
	if w.reaped {
		return
	}
	w.reaped = true
	w.order(standDown)
	w.orders.Close()
	w.cmd.Wait() // it may have been killed with its group
}

// order cannot fail but for a warden that was killed with its group. One that was
// stopped with it must hear, too.
func (w *warden) order(n int64) {
	w.cmd.Process.Signal(unix.SIGCONT)
	w.orders.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

func (w *warden) acknowledged() bool {
	n, _ := w.acks.Read(make([]byte, 1))
	return n == 1
}

// wardenMain is the warden's life.
func wardenMain(orders io.Reader, acks io.Writer) int {
	if unix.Getpgrp() != os.Getpid() {
		fmt.Fprintln(os.Stderr, "redlock: "+wardenArg+" is for redlock's own use")
		return exitUsage
	}
	signal.Ignore(append(groupSignals, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU)...)
	acks.Write([]byte{1})

	due := make(chan struct{}, 1)
	timer := clock.System.AfterFunc(time.Hour, func() { due <- struct{}{} })
	timer.Stop()
	limited := false
	inbox := make(chan int64)
	go receiveOrders(orders, inbox)
	group := os.Getpid()
	for {
		select {
		case <-due:
			unix.Kill(-group, unix.SIGKILL)
			return 0 // has been killed itself, unless it stood aside
		case order, alive := <-inbox:
			switch {
			case !alive && !limited: // nothing was started yet
				return 0
			case !alive:
				unix.Kill(-group, unix.SIGTERM)
				unix.Kill(-group, unix.SIGCONT) // what is stopped does not hear
				inbox = nil
			case order == standDown:
				return 0
			case order == stepAside:
				// The group 0 is one outside of our PID namespace, which cannot be joined:
				// setpgid(2) means our own by it.
				parent, err := unix.Getpgid(os.Getppid())
				if err != nil || parent == 0 || unix.Setpgid(0, parent) != nil {
					return 0 // nobody watches for that moment, but nobody is in the way
				}
				acks.Write([]byte{1})
			default:
				limited = true
				timer.Reset(max(0, time.Duration(order)-machineTime()))
			}
		}
	}
}

// receiveOrders closes the inbox when there is nobody to give orders any more.
func receiveOrders(from io.Reader, inbox chan<- int64) {
	defer close(inbox)
	var b [8]byte
	for {
		if _, err := io.ReadFull(from, b[:]); err != nil {
			return
		}
		inbox <- int64(binary.BigEndian.Uint64(b[:]))
	}
}
