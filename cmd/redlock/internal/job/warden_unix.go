//go:build unix

package job

import (
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wardenProcess makes the warden a member of a process group, or the leader of one if group is zero.
func wardenProcess(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

// ownProgram returns the path of this program. The path in /proc exists even if the file was
// replaced since the start.
func ownProgram() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err != nil {
		return os.Executable()
	}
	return self, nil
}

// group returns the number of the command's process group.
func (w *warden) group() int { return w.cmd.Process.Pid }

// wake continues a warden that was stopped with its group.
func (w *warden) wake() { w.cmd.Process.Signal(unix.SIGCONT) }

// leave makes the warden leave the group, and reports whether it did. If it did not, it has ended,
// or is ending because it has killed the command.
func (w *warden) leave() bool {
	w.send(order{leaveGroup, 0})
	return w.says(hasLeft, patience)
}

// watchedGroup is the process group of the command, in which a warden is started.
var watchedGroup = unix.Getpgrp()

// startedAsWarden reports whether this process leads a group, or is in the group named by its
// argument. A command that a person started from a program does neither.
func startedAsWarden() bool {
	want := os.Getpid()
	if len(os.Args) > 2 {
		want, _ = strconv.Atoi(os.Args[2])
	}
	return len(os.Args) <= 3 && watchedGroup == want
}

// settleAsWarden makes this process ignore signals to its group, and raises the priority of this
// thread. All urgent work happens in this thread. The garbage collector's threads do not have the
// priority, so the collector must not run: the loop of a warden allocates nothing.
func settleAsWarden() {
	signal.Ignore(append(groupSignals, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU)...)
	hurry()
	debug.SetGCPercent(-1)
}

// killCommand kills this process, too, unless it has left the group. If it may not kill the
// command, it first prints that, unless printing would block.
func killCommand(command int) {
	if command != 0 && isForeign(command) {
		ready := [1]unix.PollFd{{Fd: 2, Events: unix.POLLOUT}}
		if n, _ := unix.Poll(ready[:], 0); n > 0 {
			unix.Write(2, []byte("redlock: the command runs as another user and cannot be killed: another client can have the lock\n"))
		}
	}
	signalJob(watchedGroup, command, unix.SIGKILL)
}

// isForeign reports whether a process exists that this process may not signal, because it belongs
// to another real user. A negative number means a group.
func isForeign(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.EPERM) }

// leaveCommand moves from the command's group to the group of the first process, and reports
// whether it did. The group 0 is outside of our PID namespace and cannot be joined, because
// setpgid(2) interprets 0 as our own.
func leaveCommand() bool {
	parent, err := unix.Getpgid(os.Getppid())
	return err == nil && parent != 0 && unix.Setpgid(0, parent) == nil
}

// nextOrder returns the next order in the pipe. It waits for at most patience, and checks at least
// once. An order is written in one piece, so it is either complete or absent.
func nextOrder(pipe int, patience time.Duration) order {
	ready := [1]unix.PollFd{{Fd: int32(pipe), Events: unix.POLLIN}}
	n, err := unix.Poll(ready[:], int((patience+time.Millisecond-1)/time.Millisecond))
	if n == 0 || err != nil {
		return order{Do: silence}
	}
	var text [orderSize]byte
	if n, _ := unix.Read(pipe, text[:]); n < len(text) {
		return order{Do: widowed}
	}
	return orderOf(text)
}

// signalJob sends a signal to the command's group, and to the command if it is in another group:
// timeout(1), setsid(1) and shells with job control create their own groups. The group comes last,
// because the caller may be in it.
func signalJob(group, command int, s syscall.Signal) {
	if command != 0 {
		switch own, err := unix.Getpgid(command); {
		case err != nil || own == group:
		case own == command:
			unix.Kill(-own, s)
		default: // other processes exist, too
			unix.Kill(command, s)
		}
	}
	unix.Kill(-group, s)
}

// MachineTime returns a reading of a clock that all processes of this machine share and that cannot
// be set: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on other kinds of Unix. It is safe for
// concurrent use.
func MachineTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(machineClock, &ts); err != nil {
		panic("redlock: this machine has no monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
