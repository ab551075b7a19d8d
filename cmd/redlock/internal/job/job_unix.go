//go:build unix

package job

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// EndingSignals end this process, or its current wait.
var EndingSignals = []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// groupSignals are forwarded to the command's process group.
var groupSignals = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
}

// A system holds the Unix state of a command, and of its connection with this process.
type system struct {
	tty    terminal
	front  bool // the command gets the terminal when this process has it
	group  int
	child  int  // the command, until this process has waited for it
	gate   int  // our end of the connection to the gate; -1 without one
	follow bool // this process got a SIGTSTP, and must stop with the command
}

// start starts the gate in the warden's group, informs the warden, and starts to follow the
// process.
func (j *Job) start(env []string) error {
	adoptOrphans()
	j.tty = ourTerminal()
	j.front, j.group, j.gate = j.tty.alone, j.warden.group(), -1
	self, err := ownProgram()
	if err != nil {
		return fmt.Errorf("cannot find the program file of redlock: %w", err)
	}
	ours, theirs, err := gatePipe()
	if err != nil {
		return fmt.Errorf("cannot connect to the command's process: %w", err)
	}
	j.gate = ours
	cmd := &exec.Cmd{
		Path: self, Args: append([]string{self, gateArg, strconv.Itoa(theirs), j.command.Path}, j.command.Argv...),
		Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pgid: j.group},
	}
	if j.front && j.tty.ours() {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, j.tty.fd
	}
	// The gate inherits its end under the same number, because the command may use all lower ones.
	if _, err = unix.FcntlInt(uintptr(theirs), unix.F_SETFD, 0); err == nil {
		err = cmd.Start()
	}
	unix.Close(theirs)
	if err != nil {
		return fmt.Errorf("cannot start the command's process: %w", err)
	}
	j.child = cmd.Process.Pid
	j.warden.setCommand(j.child)
	j.changes = make(chan change, 1)
	go j.wait(j.child)
	cmd.Process.Release() // os.Process does not report stops
	return nil
}

// anotherWarden starts a warden in the command's group, or in its own if that group is empty.
func (j *Job) anotherWarden() (*warden, error) {
	known := []order{endAt(j.lease.until), {setCommand, int64(j.child)}}
	w, err := startWarden(j.group, j.lease.left(), known...)
	if errors.Is(err, unix.EPERM) {
		w, err = startWarden(0, j.lease.left(), known...)
	}
	return w, err
}

// wait sends the changes of one child to j.changes until the child has ended. It waits for all
// other children, too, so that none remains a zombie.
func (j *Job) wait(child int) {
	for {
		var s unix.WaitStatus
		pid, err := unix.Wait4(-1, &s, unix.WUNTRACED, nil)
		if err != nil || pid != child {
			continue // EINTR, or an orphan; the child still exists, so no other error is possible
		}
		if s.Stopped() {
			j.changes <- change{stopped: s.StopSignal()}
			continue
		}
		code := s.ExitStatus()
		if s.Signaled() {
			code = SignalCode(s.Signal())
		}
		j.changes <- change{ended: true, code: code}
		return
	}
}

// changed reacts to a change of the command.
func (j *Job) changed(c change) {
	if !c.ended {
		j.stopped(c.stopped)
		return
	}
	j.child = 0
	j.warden.setCommand(0)
	if !j.warden.leave() { // it was killed with all the others, or cannot join our group
		j.warden.dismiss()
	}
}

// finish returns the terminal to this process.
func (j *Job) finish() {
	j.tty.pass(j.group, unix.Getpgrp())
	unix.Close(j.gate)
}

// ask asks all processes of the command to end, and returns true.
func (j *Job) ask() bool {
	j.signal(unix.SIGTERM)
	j.signal(unix.SIGCONT) // a stopped process does not act on SIGTERM
	return true
}

func (j *Job) kill() { j.signal(unix.SIGKILL) }

func (j *Job) signal(s syscall.Signal) { signalJob(j.group, j.child, s) }

// isForeign reports whether the command belongs to another user, so that this process may not
// signal it. If the command has ended, it reports the same for the rest of the group.
func (j *Job) isForeign() bool {
	if j.child != 0 {
		return isForeign(j.child)
	}
	return isForeign(-j.group)
}

// forward forwards a signal to the command.
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

// gone reports whether the group is empty. It waits for the dead processes of the group, because
// they count as members until then.
func (j *Job) gone() bool {
	for {
		if pid, err := unix.Wait4(-j.group, nil, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
			return errors.Is(unix.Kill(-j.group, 0), unix.ESRCH)
		}
	}
}
