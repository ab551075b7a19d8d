//go:build unix

package job

import (
	"bytes"
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

// EndingSignals end this process, or what it waits for.
var EndingSignals = []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// groupSignals are passed on to the command's process group.
var groupSignals = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
}

// A Job is a command under a lock: its process group, with a warden in it, and the signals and
// the terminal that it shares with this process. It is used by one goroutine.
type Job struct {
	command Command
	warden  *warden
	tty     terminal
	front   bool // the command gets the terminal when this process has it

	group   int
	child   int // the command, until it has been waited for
	signals chan os.Signal
	changes chan unix.WaitStatus // of the command
	follow  bool                 // this process got a SIGTSTP, and is to stop with the command
	ending  bool                 // this process got one of EndingSignals
	lease   *lease
}

// New makes ready for a command, before there is a lock. Signals that come from here on end the
// waiting for the lock, or go to the command.
func New(c Command) (*Job, error) {
	w, err := startWarden()
	if err != nil {
		return nil, err
	}
	tty := ourTerminal()
	j := &Job{command: c, warden: w, tty: tty, front: tty.alone, group: w.group(), signals: make(chan os.Signal, 16)}
	for _, s := range EndingSignals {
		j.notify(s)
	}
	// The reader of our standard error may go away. To write there must not end this process,
	// which has a command to watch and a lock to release.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return j, nil
}

// Close ends the warden.
func (j *Job) Close() {
	signal.Stop(j.signals)
	j.warden.dismiss()
}

// notify has a signal sent to j.signals instead of its default action, unless this process was
// started with the signal ignored.
func (j *Job) notify(s os.Signal) {
	if !signal.Ignored(s) {
		signal.Notify(j.signals, s)
	}
}

// Run runs the command while the lock is held. Its error says that the command was not started: a
// *fs.PathError, that it cannot be executed.
// The caller releases the lock.
func (j *Job) Run(lock *redlock.Lock, env []string) (Result, error) {
	select {
	case s := <-j.signals: // before there is a command to pass it on to
		return Result{Swept: true}, SignalError{s.(syscall.Signal)}
	default:
	}
	for _, s := range groupSignals {
		j.notify(s)
	}
	j.lease = newLease(lock, j.command, j.warden.allow)
	defer j.lease.stop()
	if !j.lease.renewed() {
		return Result{Swept: true}, fmt.Errorf("the command was not started: %w: too little was left of it", redlock.ErrLost)
	}
	adoptOrphans()
	if err := j.start(env); err != nil {
		j.tty.pass(j.group, unix.Getpgrp())
		return Result{Swept: true}, err
	}
	status := j.watch()
	result := Result{Code: status.ExitStatus()}
	if status.Signaled() {
		result.Code = SignalCode(status.Signal())
	}
	result.Swept = j.sweep()
	if j.lease.lost == nil && j.warden.killed && result.Code == SignalCode(unix.SIGKILL) {
		j.lease.lose("no renewal was seen in time")
	}
	j.tty.pass(j.group, unix.Getpgrp())
	result.Lost = j.lease.lost
	return result, nil
}

// Linger keeps the lock for a while after the command has ended, or until this process gets one
// of EndingSignals. It reports whether the lock was held until then.
func (j *Job) Linger(lock *redlock.Lock, d time.Duration) bool {
	over := time.After(d)
	for !j.ending {
		select {
		case <-over:
			return true
		case <-lock.Context().Done():
			return false
		case s := <-j.signals:
			j.ending = slices.Contains(EndingSignals, s.(syscall.Signal))
		}
	}
	return true
}

// start starts the command in the warden's group and follows what becomes of it.
func (j *Job) start(env []string) error {
	cmd := j.process(j.command.Path, j.command.Argv, env)
	err := cmd.Start()
	if errors.Is(err, unix.ENOEXEC) && isText(j.command.Path) { // a script without #!, as for execvp(3)
		cmd = j.process(interpreter, append([]string{interpreter, j.command.Path}, j.command.Argv[1:]...), env)
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	j.child = cmd.Process.Pid
	j.warden.setCommand(j.child)
	j.changes = make(chan unix.WaitStatus, 1)
	go j.wait(j.child)
	cmd.Process.Release() // os.Process does not report stops
	return nil
}

// interpreter runs what has no line that says by what it is run.
const interpreter = "/bin/sh"

// process returns what starts a process in the warden's group.
func (j *Job) process(path string, argv, env []string) *exec.Cmd {
	cmd := &exec.Cmd{
		Path: path, Args: argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pgid: j.group},
	}
	if j.front && j.tty.ours() {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, j.tty.fd
	}
	return cmd
}

// isText reports whether a file looks like a script. A program for another kind of machine does not.
func isText(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := f.Read(head)
	return bytes.IndexByte(head[:n], 0) < 0
}

// wait sends the changes of one child to j.changes until it has ended. It waits for all other
// children, too, so that none is left as a zombie.
func (j *Job) wait(child int) {
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

// watch returns when the command has ended, by itself or because the lock was lost.
func (j *Job) watch() unix.WaitStatus {
	lost := j.lease.lock.Context().Done()
	for {
		select {
		case s := <-j.signals:
			j.forward(s.(syscall.Signal))
		case <-lost:
			lost = nil
			j.end()
		case <-j.command.Renewed:
			if j.lease.lost == nil {
				j.lease.renewed()
			}
		case <-j.lease.due:
			switch {
			case j.lease.lost == nil && !j.lease.renewed():
				j.end()
			case j.lease.over():
				j.signal(unix.SIGKILL)
			}
		case s := <-j.changes:
			if !s.Stopped() {
				j.child = 0
				j.warden.setCommand(0)
				return s
			}
			j.stopped(s.StopSignal())
		}
	}
}

// end asks the command to end, because the lock is lost. When the command's time is over it is
// killed.
func (j *Job) end() {
	if j.lease.lost != nil {
		return
	}
	j.lease.shorten()
	j.signal(unix.SIGTERM)
	j.signal(unix.SIGCONT) // a stopped process does not act on SIGTERM
}

func (j *Job) signal(s syscall.Signal) { signalJob(j.group, j.child, s) }

// forward passes a signal on.
func (j *Job) forward(s syscall.Signal) {
	switch s {
	case unix.SIGTSTP:
		j.follow = true
	case unix.SIGCONT:
		j.resume()
		return
	}
	j.signal(s)
	if slices.Contains(EndingSignals, s) {
		j.ending = true
		j.signal(unix.SIGCONT) // a stopped process does not act on it
	}
}

// sweep ends what the command has left in its group, and reports whether nothing
// is left.
func (j *Job) sweep() bool {
	if !j.warden.leave() { // it was killed with all the others, or cannot join our group
		j.warden.dismiss()
	}
	ask, kill := true, clock.System.Now().Add(j.command.KillAfter)
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
			if slices.Contains(EndingSignals, s.(syscall.Signal)) { // the sender does not want to wait
				j.ending, kill = true, now
			}
		default:
		}
	}
}

// reap waits for the group's dead processes, because they count as members until then.
func (j *Job) reap() {
	for {
		if pid, err := unix.Wait4(-j.group, nil, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
