//go:build unix

package main

import (
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopped stops us as well when the command was stopped by its terminal, or by
// us, so that the shell that started us gets its prompt. A job that is stopped
// holds its lock no longer than for a TTL.
func (j *job) stopped(by syscall.Signal) {
	fromTerminal := j.tty.there && (by == unix.SIGTSTP || by == unix.SIGTTIN || by == unix.SIGTTOU)
	if !fromTerminal && !j.follow {
		return
	}
	j.follow = false
	j.front = j.front || by == unix.SIGTTIN || by == unix.SIGTTOU
	if by != unix.SIGTSTP && j.tty.ours() { // it was not passed on yet, or the shell gave it to us after that
		j.resume()
		return
	}
	// Who reads in the background may do so because it was continued to hear that it
	// is to end, by a signal that we have not heard yet.
	if by != unix.SIGTSTP && j.toldOtherwise() {
		return
	}
	j.tty.pass(j.group, unix.Getpgrp())
	// A shell that can continue us has put us into a group other than its own. The
	// whole group stops, as when a terminal does it: we may be part of a pipeline.
	if session, err := unix.Getsid(0); err == nil && session != unix.Getpgrp() {
		unix.Kill(0, unix.SIGSTOP)
		j.awaitCont()
	}
	j.resume()
}

// toldOtherwise waits a moment for a signal that makes it wrong to stop: to end, or
// to go on.
func (j *job) toldOtherwise() bool {
	moment := time.NewTimer(50 * time.Millisecond)
	defer moment.Stop()
	for !j.asked {
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

// awaitCont waits until we were stopped and continued. The stop itself can come a
// moment after the signal was sent.
func (j *job) awaitCont() {
	moment := time.NewTimer(200 * time.Millisecond)
	defer moment.Stop()
	for {
		select {
		case s := <-j.signals:
			if s == unix.SIGCONT {
				return
			}
			j.asked = j.asked || slices.Contains(endingSignals, s.(syscall.Signal))
			j.signal(s.(syscall.Signal))
		case <-moment.C:
			return
		}
	}
}

// resume lets the command go on, in the foreground if that is ours. If the
// time was over meanwhile it is killed as it is.
func (j *job) resume() {
	if j.lease.over() {
		j.signal(unix.SIGKILL)
		return
	}
	if j.front {
		j.tty.pass(unix.Getpgrp(), j.group)
	}
	j.signal(unix.SIGCONT)
}
