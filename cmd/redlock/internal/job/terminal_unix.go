//go:build unix

package job

import (
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A terminal is our standard input, or otherwise the terminal of our session, if there is one. It
// has one foreground: the process group that may read from it and that gets its Ctrl-C.
type terminal struct {
	fd    int
	there bool
	// alone means that the terminal is our standard output, too. Otherwise we may be part of a
	// pipeline in which another part, such as a pager, needs the terminal. The command then gets
	// the terminal only when it is stopped for lack of it.
	alone bool
}

func ourTerminal() terminal {
	if isTerminal(syscall.Stdin) {
		return terminal{fd: syscall.Stdin, there: true, alone: isTerminal(syscall.Stdout)}
	}
	// Programs use this terminal to ask for a password. The descriptor is closed at our end.
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	return terminal{fd: fd, there: err == nil}
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil
}

// ours reports whether we are the foreground, and not a background job.
func (t terminal) ours() bool { return t.there && t.foreground() == unix.Getpgrp() }

func (t terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// pass makes the group to the foreground instead of the group from. A background process may do
// that only if it ignores the resulting SIGTTOU.
func (t terminal) pass(from, to int) {
	if !t.there || t.foreground() != from {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)               // because a new command must not inherit that
	unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, to) // fails if the terminal no longer exists
}

// stopped stops this process as well when the command was stopped by its terminal, or by us, so
// that the shell that started us shows its prompt. A stopped job holds its lock for at most a TTL.
func (j *Job) stopped(by syscall.Signal) {
	fromTerminal := j.tty.there && (by == unix.SIGTSTP || by == unix.SIGTTIN || by == unix.SIGTTOU)
	if !fromTerminal && !j.follow {
		return
	}
	j.follow = false
	j.front = j.front || by == unix.SIGTTIN || by == unix.SIGTTOU
	if by != unix.SIGTSTP && j.tty.ours() { // the command does not have the terminal yet, or the shell returned it to us
		j.resume()
		return
	}
	// A command that reads in the background may have been continued in order to end, by a signal
	// that we have not read yet.
	if by != unix.SIGTSTP && j.awaitOtherSignal() {
		return
	}
	j.tty.pass(j.group, unix.Getpgrp())
	// A shell that can continue us has put us into a group of our own. The whole group stops, as
	// when a terminal stops it, because we may be part of a pipeline.
	if session, err := unix.Getsid(0); err == nil && session != unix.Getpgrp() {
		unix.Kill(0, unix.SIGSTOP)
		j.awaitCont()
	}
	j.resume()
}

// awaitOtherSignal waits a moment for a signal that forbids stopping, to end or to continue. It
// reports whether one arrived.
func (j *Job) awaitOtherSignal() bool {
	moment := time.NewTimer(50 * time.Millisecond)
	defer moment.Stop()
	for !j.ending {
		select {
		case s := <-j.signals:
			j.forward(s.(syscall.Signal))
			if s == unix.SIGCONT {
				return true
			}
		case <-moment.C:
			return false
		}
	}
	return true
}

// awaitCont waits until this process was stopped and continued. The stop itself can happen a moment
// after the signal was sent.
func (j *Job) awaitCont() {
	moment := time.NewTimer(200 * time.Millisecond)
	defer moment.Stop()
	for {
		select {
		case s := <-j.signals:
			if s == unix.SIGCONT {
				return
			}
			j.ending = j.ending || slices.Contains(EndingSignals, s.(syscall.Signal))
			j.signal(s.(syscall.Signal))
		case <-moment.C:
			return
		}
	}
}

// resume continues the command, in the foreground if we have it. If the deadline has passed in the
// meantime, the command is killed while it is stopped.
func (j *Job) resume() {
	if j.lease.over() {
		j.lease.shorten(j.lease.late())
		j.signal(unix.SIGKILL)
		return
	}
	if j.front {
		j.tty.pass(unix.Getpgrp(), j.group)
	}
	j.signal(unix.SIGCONT)
}
