//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock"
)

// A job is a command under a lock: its process group, with a warden in it, and
// what we owe to both.
type job struct {
	path   string
	argv   []string
	warden *warden
	tty    terminal
	front  bool // it is to have the terminal when we have it

	group   int
	child   int // the command, until it has been waited for
	signals chan os.Signal
	changes chan unix.WaitStatus // of the command
	follow  bool                 // we were told to stop with it
	asked   bool                 // somebody wants us to end
	lease   *lease
}

// An ending is how a command ended.
type ending struct {
	code  int
	swept bool // nothing of it runs any more
}

// newJob makes ready for a command, before there is a lock. Signals that come
// from here on end the waiting for it, or go to the command.
func newJob(path string, argv []string) (*job, error) {
	w, err := startWarden()
	if err != nil {
		return nil, err
	}
	tty := ourTerminal()
	j := &job{path: path, argv: argv, warden: w, tty: tty, front: tty.alone, group: w.group(), signals: make(chan os.Signal, 16)}
	for _, s := range endingSignals {
		j.heed(s)
	}
	// Whoever reads our standard error may go away. To write there must not end us,
	// who have a command to watch and a lock to release.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return j, nil
}

func (j *job) close() {
	signal.Stop(j.signals)
	j.warden.dismiss()
}

// heed has a signal sent to us instead of doing what it does, unless whoever
// started us wants it ignored.
func (j *job) heed(s os.Signal) {
	if !signal.Ignored(s) {
		signal.Notify(j.signals, s)
	}
}

// run runs the command while the lock is held. lost is why it was not held any
// longer, if it was not; err says that the command could not be started. The lock
// is left to the caller.
func (j *job) run(lock *redlock.Lock, killAfter, margin time.Duration, env []string) (end ending, lost, err error) {
	select {
	case s := <-j.signals: // before there is anybody to pass it on to
		by := interrupt{s.(syscall.Signal)}
		return ending{swept: true}, nil, &exitError{code: by.exitCode(), err: by}
	default:
	}
	for _, s := range groupSignals {
		j.heed(s)
	}
	j.lease = newLease(lock, killAfter, margin, j.warden.allow)
	defer j.lease.stop()
	if !j.lease.renewed() {
		return ending{swept: true}, nil, fmt.Errorf("the command was not started: %w: too little was left of it", redlock.ErrLost)
	}
	adoptOrphans()
	if err := j.start(env); err != nil {
		j.tty.pass(j.group, unix.Getpgrp())
		return ending{swept: true}, nil, err
	}
	status := j.watch()
	end.code = status.ExitStatus()
	if status.Signaled() {
		end.code = exitSignalled + int(status.Signal())
	}
	end.swept = j.sweep()
	j.tty.pass(j.group, unix.Getpgrp())
	return end, j.lease.lost, nil
}

// linger keeps the lock for a while after the command has ended, unless somebody
// wants us to end. It reports whether the lock was held until then.
func (j *job) linger(lock *redlock.Lock, d time.Duration) bool {
	over := time.After(d)
	for !j.asked {
		select {
		case <-over:
			return true
		case <-lock.Context().Done():
			return false
		case s := <-j.signals:
			j.asked = slices.Contains(endingSignals, s.(syscall.Signal))
		}
	}
	return true
}

// start starts the command in the warden's group and follows what becomes of it.
func (j *job) start(env []string) error {
	cmd := exec.Cmd{
		Path: j.path, Args: j.argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pgid: j.group},
	}
	if j.front && j.tty.ours() {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, j.tty.fd
	}
	if err := cmd.Start(); err != nil {
		return cannotRun(j.argv[0], err)
	}
	j.child = cmd.Process.Pid
	j.warden.watch(j.child)
	j.changes = make(chan unix.WaitStatus, 1)
	go j.wait(j.child)
	cmd.Process.Release() // os.Process cannot tell of stops
	return nil
}

// wait tells of the changes of one child until it has ended, and waits for
// whatever other child there is, so that none is left as a zombie.
func (j *job) wait(child int) {
	for {
		var s unix.WaitStatus
		pid, err := unix.Wait4(-1, &s, unix.WUNTRACED, nil)
		if err != nil || pid != child {
			continue // EINTR, or an orphan; the child is still there, so nothing else
		}
		j.changes <- s
		if !s.Stopped() {
			return
		}
	}
}

// watch returns when the command has ended, by itself or because the lock did.
func (j *job) watch() unix.WaitStatus {
	lost := j.lease.lock.Context().Done()
	for {
		select {
		case s := <-j.signals:
			j.forward(s.(syscall.Signal))
		case <-lost:
			lost = nil
			j.lose()
		case <-j.lease.due:
			switch {
			case j.lease.lost == nil && !j.lease.renewed():
				j.lose()
			case j.lease.over():
				j.signal(unix.SIGKILL)
			}
		case s := <-j.changes:
			if !s.Stopped() {
				j.child = 0
				j.warden.watch(0)
				j.lease.ended()
				return s
			}
			j.stopped(s.StopSignal())
		}
	}
}

// lose asks the command to end. When its time is over it is killed.
func (j *job) lose() {
	if j.lease.lost != nil {
		return
	}
	j.lease.lose()
	j.signal(unix.SIGTERM)
	j.signal(unix.SIGCONT) // what is stopped does not hear
}

func (j *job) signal(s syscall.Signal) { signalJob(j.group, j.child, s) }

// forward passes a signal on.
func (j *job) forward(s syscall.Signal) {
	switch s {
	case unix.SIGTSTP:
		j.follow = true
	case unix.SIGCONT:
		j.resume()
		return
	}
	j.signal(s)
	if slices.Contains(endingSignals, s) {
		j.asked = true
		j.signal(unix.SIGCONT) // what is stopped does not hear
	}
}

// sweep ends what the command has left in its group, and reports whether nothing
// is left.
func (j *job) sweep() bool {
	if !j.warden.aside() { // it was killed with all the others, or cannot join our group
		j.warden.dismiss()
	}
	ask, kill := true, clock.System.Now().Add(j.lease.killAfter)
	for limit := kill.Add(time.Second); ; time.Sleep(2 * time.Millisecond) {
		j.reap()
		now := clock.System.Now()
		switch err := unix.Kill(-j.group, 0); {
		case errors.Is(err, unix.ESRCH):
			return true
		case now > limit:
			return false
		case now > kill || j.lease.over():
			j.signal(unix.SIGKILL)
		case ask:
			ask = false
			j.signal(unix.SIGTERM)
			j.signal(unix.SIGCONT)
		}
		select {
		case s := <-j.signals:
			if slices.Contains(endingSignals, s.(syscall.Signal)) { // somebody does not want to wait
				j.asked, kill = true, now
			}
		default:
		}
	}
}

// reap waits for the group's dead, who count as members until then.
func (j *job) reap() {
	for {
		if pid, err := unix.Wait4(-j.group, nil, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
