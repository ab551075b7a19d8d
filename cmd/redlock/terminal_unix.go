//go:build unix

package main

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is our standard input, if that is one, and the question who may read
// from it and gets its Ctrl-C: one process group, the foreground.
type terminal struct {
	fd    int
	there bool
}

func standardInput() terminal {
	t := terminal{fd: int(syscall.Stdin)}
	_, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	t.there = err == nil
	return t
}

// ours reports whether we are the foreground, not a job in the background.
func (t terminal) ours() bool { return t.there && t.foreground() == unix.Getpgrp() }

func (t terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// pass makes another group the foreground instead of the group from. Who is not
// the foreground may not do that, unless it ignores the SIGTTOU that it gets.
func (t terminal) pass(from, to int) {
	if !t.there || t.foreground() != from {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)               // a command that is started must not inherit that
	unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, to) // a terminal that has gone is nobody's
}
