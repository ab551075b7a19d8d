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
// It reads orders from a pipe. The end of the pipe is the death of redlock, and
// then that of the command: nobody renews its lock any more.
type warden struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	acks   io.ReadCloser
	reaped bool
}

const wardenArg = "__warden" // instead of a command: be a warden

// An order is a word and a number.
type order struct {
	Do uint8
	N  int64
}

const (
	liveUntil = iota // a moment, by a clock that both processes have
	watchOver        // the command, which may leave the group; zero once it has ended
	stepAside        // leave the group, so that one can see whether it is empty
	standDown        // end, and nothing else
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
	w.order(liveUntil, int64(machineTime()+d))
}

// watch tells which process the command is, or that it has ended.
func (w *warden) watch(pid int) { w.order(watchOver, int64(pid)) }

// aside has the warden leave the group, and reports whether it did. If it did not
// it has ended.
func (w *warden) aside() bool {
	w.order(stepAside, 0)
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

// order cannot fail but for a warden that was killed with its group. One that was
// stopped with it must hear, too.
func (w *warden) order(do uint8, n int64) {
	w.cmd.Process.Signal(unix.SIGCONT)
	binary.Write(w.orders, binary.BigEndian, order{do, n})
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
	inbox := make(chan order)
	go receiveOrders(orders, inbox)
	group, command := os.Getpid(), 0
	for {
		select {
		case <-due:
			signalJob(group, command, unix.SIGKILL)
			return 0 // has been killed itself, unless it stood aside
		case o, alive := <-inbox:
			switch {
			case !alive:
				signalJob(group, command, unix.SIGKILL)
				return 0
			case o.Do == liveUntil:
				timer.Reset(max(0, time.Duration(o.N)-machineTime()))
			case o.Do == watchOver:
				command = int(o.N)
			case o.Do == stepAside:
				// The group 0 is one outside of our PID namespace, which cannot be joined:
				// setpgid(2) means our own by it.
				parent, err := unix.Getpgid(os.Getppid())
				if err != nil || parent == 0 || unix.Setpgid(0, parent) != nil {
					return 0 // nobody watches for that moment, but nobody is in the way
				}
				acks.Write([]byte{1})
			case o.Do == standDown:
				return 0
			}
		}
	}
}

// receiveOrders closes the inbox when there is nobody to give orders any more.
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

// signalJob sends a signal to the command's group, and to the command if it is
// elsewhere: timeout(1), setsid(1) and shells with job control make a group of
// their own. The group comes last, for who calls this may be in it.
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
