//go:build unix

package main

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is our standard input, or else that of our session, if there is one,
// and the question who may read from it and gets its Ctrl-C: one process group, the
// foreground.
type terminal struct {
	fd    int
	there bool
	// alone: it is our standard output, too. Else we may be part of a pipeline, and
	// another part, such as a pager, in need of the terminal. The command then gets
	// it when it is stopped for the want of it.
	alone bool
}

func ourTerminal() terminal {
	if isTerminal(syscall.Stdin) {
		return terminal{fd: syscall.Stdin, there: true, alone: isTerminal(syscall.Stdout)}
	}
	// Programs that ask for a password do it there. The descriptor is closed by our end.
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	return terminal{fd: fd, there: err == nil}
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil
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
