// Package job runs a command while a lock is held, and ensures that the command has ended before
// the lock does, even if this process is stopped or killed. It implements "redlock run" between the
// acquisition and the release of the lock.
//
// There are three processes. This process forwards signals, and extends the command's lease with
// each renewal of the lock (lease.go). The command has its own process group, and on Windows a job
// object. The warden, a second process of this program, kills the whole group or job object when
// the lease has expired, even if this process is stopped or dead (warden.go).
//
// The command starts at a gate. Its process first runs this program, in the command's group, and
// waits (gate_unix.go; on Windows it is suspended). When the warden has confirmed that it knows the
// process, this process checks the lock again and sends the deadline. The gate then becomes the
// command, unless the deadline has passed. Therefore no pause of any of these processes starts a
// command late, and a process that ends early leaves no process behind.
//
//	held ──lock lost, or too little left──▶ SIGTERM ──KillAfter──▶ SIGKILL ──Margin──▶ end of the lock
//
// A program that imports this package is a warden or a gate if its first argument is "__warden" or
// "__gate": see init.
package job

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock"
)

// A Command is the command of a job, and the way to end it when its lock is lost.
type Command struct {
	Path string
	Argv []string // including the name

	KillAfter time.Duration // time from SIGTERM to SIGKILL
	Margin    time.Duration // time from SIGKILL to the end of the lock's validity

	Renewed <-chan struct{} // gets a value when the lock was renewed; without it, the lock is checked as late as possible

	Foreign func() // called once if the lock is lost and the command belongs to another user, so that it cannot be ended; may be nil
}

// Margin returns the time from the last SIGKILL to the end of the validity. Even a killed process
// needs a moment to die, especially on a busy machine.
func Margin(ttl time.Duration) time.Duration { return max(ttl/10, 100*time.Millisecond) }

// A Result describes the end of a command.
type Result struct {
	Code  int   // exit code as reported by a shell: from the command, or from the signal that ended it
	Swept bool  // no process of the command is left
	Lost  error // reason this process or the warden ended the command

	Foreign bool // when the lock was lost, a process of the command belonged to another user and could not be ended
}

// SignalCode returns the exit code of a process that a signal has ended, as a shell reports it.
func SignalCode(s syscall.Signal) int { return 128 + int(s) }

// A SignalError means that a signal to this process has ended its current operation.
type SignalError struct{ Signal syscall.Signal }

func (e SignalError) Error() string { return "ended by a signal: " + e.Signal.String() }

// A Job is a command under a lock, with its warden and the signals that it shares with this
// process. This type makes the decisions; job_unix.go and job_windows.go act on the command. A Job
// is used by one goroutine.
type Job struct {
	command Command
	warden  *warden
	system  // processes of the command

	signals chan os.Signal
	changes chan change // of the command
	ending  bool        // this process got one of EndingSignals
	foreign bool        // a process of the command could not be ended when the lock was lost
	lease   *lease
}

// A change means that a command has ended or was stopped by a signal.
type change struct {
	ended   bool
	code    int // as reported by a shell
	stopped syscall.Signal
}

// startLimit is the time for the first warden to start, even on a busy machine.
const startLimit = 30 * time.Second

// New prepares a job before its lock is acquired. From here on, signals end the wait for the lock,
// or are forwarded to the command.
func New(c Command) (*Job, error) {
	w, err := startWarden(0, startLimit)
	if err != nil {
		return nil, err
	}
	j := &Job{command: c, warden: w, signals: make(chan os.Signal, 16)}
	for _, s := range EndingSignals {
		j.notify(s)
	}
	// The reader of standard error may disappear. A write to it must not end this process, which
	// must watch the command and release the lock.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return j, nil
}

// Close ends the warden.
func (j *Job) Close() {
	signal.Stop(j.signals)
	j.warden.dismiss()
}

// notify redirects a signal to j.signals instead of its default action, unless this process was
// started with the signal ignored.
func (j *Job) notify(s os.Signal) {
	if !signal.Ignored(s) {
		signal.Notify(j.signals, s)
	}
}

// Run runs the command while the lock is held. It returns an error if the command was not started,
// for example a *fs.PathError if it cannot be executed. The caller releases the lock.
func (j *Job) Run(lock *redlock.Lock, env []string) (Result, error) {
	select {
	case s := <-j.signals: // before there is a command to receive it
		return Result{Swept: true}, SignalError{s.(syscall.Signal)}
	default:
	}
	for _, s := range groupSignals {
		j.notify(s)
	}
	if j.warden.ended() { // during the wait for the lock
		w, err := startWarden(0, startLimit)
		if err != nil {
			return Result{Swept: true}, err
		}
		j.warden.dismiss()
		j.warden = w
	}
	j.lease = newLease(lock, j.command, func(until clock.Instant) { j.warden.allow(until) })
	defer j.lease.stop()
	if !j.lease.renewed() {
		return Result{Swept: true}, j.notStarted()
	}
	defer j.finish()
	if err := j.start(env); err != nil {
		return Result{Swept: true}, err
	}
	if err := j.admit(); err != nil {
		j.abort()
		return Result{Swept: true}, err
	}
	result := Result{Code: j.watch()}
	if err := j.refusal(); err != nil {
		return Result{Swept: true}, err
	}
	result.Swept = j.sweep()
	if j.lease.lost == nil && j.warden.killed && result.Code == SignalCode(syscall.SIGKILL) {
		j.lease.lose(j.lease.asLost("no renewal was seen in time"))
	}
	result.Lost, result.Foreign = j.lease.lost, j.foreign
	return result, nil
}

// admit opens the gate. It waits until the warden knows the command, and then checks the lock
// again, because this process may have been paused for any time since the last check. A pause after
// this check is harmless, because the gate has the deadline, too.
func (j *Job) admit() error {
	if !j.warden.says(knows, j.lease.left()) {
		if j.warden.killed || j.lease.left() == 0 {
			return j.notStarted()
		}
		return errors.New("the command was not started: its watching process has ended or does not answer")
	}
	if j.lease.lock.Context().Err() != nil || !j.lease.renewed() {
		return j.notStarted()
	}
	j.open(onMachine(j.lease.until))
	return nil
}

// abort ends the process that waits at the gate.
func (j *Job) abort() {
	j.kill()
	for !(<-j.changes).ended {
	}
}

// notStarted returns the error for a command whose lock expires too soon.
func (j *Job) notStarted() error {
	return fmt.Errorf("the command was not started: %w: too little time was left", redlock.ErrLost)
}

// Linger keeps the lock for d after the command has ended, or until this process gets one of
// EndingSignals. It reports whether the lock was held until then.
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

// watch returns the exit code of the command after it has ended, on its own or because the lock was
// lost.
func (j *Job) watch() int {
	lost, words := j.lease.lock.Context().Done(), j.warden.words
	for {
		select {
		case s := <-j.signals:
			j.forward(s.(syscall.Signal))
		case <-lost:
			lost = nil
			j.end(j.lease.late())
		case <-j.command.Renewed:
			if j.lease.lost == nil {
				j.lease.renewed()
			}
		case <-j.lease.due:
			switch {
			case j.lease.lost == nil && !j.lease.renewed():
				j.end(j.lease.late())
			case j.lease.over():
				j.kill()
				j.tellForeign()
			}
		case word, more := <-words:
			if j.warden.hear(word, more); !more {
				words = j.replaceWarden()
			}
		case c := <-j.changes:
			j.changed(c)
			if c.ended {
				return c.code
			}
		}
	}
}

// replaceWarden replaces a dead warden, and returns the channel of the new warden's messages, or
// nil if no warden could be started. Until the new warden runs, only this process guards the
// command, so the wait is limited by the remaining life of the command. Without a warden the
// command is ended, because it would outlive its lock if this process were stopped, too.
func (j *Job) replaceWarden() <-chan byte {
	if j.warden.killed { // the command was killed, too
		return nil
	}
	w, err := j.anotherWarden()
	if err != nil {
		j.end(fmt.Errorf("redlock: %q: the process that watches the command has ended, and another could not be started: %w", j.lease.lock.Name(), err))
		return nil
	}
	j.warden.dismiss()
	j.warden = w
	return w.words
}

// end asks the command to end, because the lock is lost, or for the given other reason. The command
// is killed after its deadline, or at once if it cannot be asked.
func (j *Job) end(instead error) {
	if j.lease.lost != nil {
		return
	}
	j.lease.shorten(instead)
	if !j.ask() {
		j.kill()
	}
	j.tellForeign()
}

// tellForeign reports a loss once if the command cannot be ended.
func (j *Job) tellForeign() {
	if j.foreign || j.lease.lost == nil || !j.isForeign() {
		return
	}
	if j.foreign = true; j.command.Foreign != nil {
		j.command.Foreign()
	}
}

// sweep ends the processes that the command has left, and reports whether all have ended.
func (j *Job) sweep() bool {
	ask, kill := true, clock.System.Now().Add(j.command.KillAfter)
	for limit := kill.Add(time.Second); ; time.Sleep(2 * time.Millisecond) {
		now := clock.System.Now()
		switch {
		case j.gone():
			return true
		case now > limit:
			return false
		case now > kill || j.lease.over():
			j.kill()
		case ask:
			if ask = false; !j.ask() {
				kill = now
			}
		}
		j.tellForeign()
		select {
		case s := <-j.signals:
			if slices.Contains(EndingSignals, s.(syscall.Signal)) { // the sender does not want to wait
				j.ending, kill = true, now
			}
		default:
		}
	}
}
