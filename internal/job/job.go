// Package job runs a command while a lock is held, and sees to it that the command has ended
// before the lock does, whatever happens to this process. It is what "redlock run" does between
// taking the lock and releasing it.
//
// There are three processes. This one passes signals on, and moves the end of the command's
// lease with each renewal of the lock (lease.go). The command has a process group of its own.
// The warden, a second process of this program, leads that group and kills it when the lease is
// over, even if this process is stopped or dead (warden_unix.go).
//
//	held ──lock lost, or too little left──▶ SIGTERM ──KillAfter──▶ SIGKILL ──Margin──▶ end of the lock
//
// A program that imports this package is a warden if it is started with the one argument
// "__warden": see init.
package job

import (
	"syscall"
	"time"
)

// A Command is what a job runs, and how it is ended when its lock is lost.
type Command struct {
	Path string
	Argv []string // with the name

	KillAfter time.Duration // from SIGTERM to SIGKILL
	Margin    time.Duration // from SIGKILL to the end of the lock's validity

	Renewed <-chan struct{} // gets a value when the lock was renewed; the lock is looked at without it, too, but as late as can be
}

// Margin returns how long before the end of the validity the last process must have been sent
// SIGKILL, because dying takes a moment, too, on a machine that is busy.
func Margin(ttl time.Duration) time.Duration { return max(ttl/10, 100*time.Millisecond) }

// A Result is how a command ended.
type Result struct {
	Code  int   // as a shell reports it: its own, or that of the signal that ended it
	Swept bool  // nothing of it runs any more
	Lost  error // why it was ended, by this process or by the warden
}

// SignalCode returns the exit code of a process that a signal has ended, as a shell reports it.
func SignalCode(s syscall.Signal) int { return 128 + int(s) }

// A SignalError says that a signal to this process has ended what was under way.
type SignalError struct{ Signal syscall.Signal }

func (e SignalError) Error() string { return "ended by a signal: " + e.Signal.String() }
