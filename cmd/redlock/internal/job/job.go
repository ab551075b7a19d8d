// Package job runs a command while a lock is held, and sees to it that the command has ended
// before the lock does, whatever happens to this process. It is what "redlock run" does between
// taking the lock and releasing it.
//
// There are three processes. This one passes signals on, and moves the end of the command's
// lease with each renewal of the lock (lease.go). The command has a process group of its own, and on
// Windows a job object. The warden, a second process of this program, kills all that is in it when the
// lease is over, even if this process is stopped or dead (warden.go).
//
// The command begins behind a gate. Its process first runs this program, in the command's group, and
// waits (gate_unix.go; on Windows it is suspended). When the warden has confirmed that it has the
// process, this process looks at the lock again and sends the deadline, and the gate becomes the command
// unless the deadline has passed. So no pause of any of the three starts a command late, and a process
// that ends early leaves none behind.
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

// A Command is what a job runs, and how it is ended when its lock is lost.
type Command struct {
	Path string
	Argv []string // with the name

	KillAfter time.Duration // from SIGTERM to SIGKILL
	Margin    time.Duration // from SIGKILL to the end of the lock's validity

	Renewed <-chan struct{} // gets a value when the lock was renewed; the lock is looked at without it, too, but as late as can be

	Foreign func() // called once if the lock is lost and the command is another user's, so that it cannot be ended; may be nil
}

// Margin returns how long before the end of the validity the last process must have been sent
// SIGKILL, because dying takes a moment, too, on a machine that is busy.
func Margin(ttl time.Duration) time.Duration { return max(ttl/10, 100*time.Millisecond) }

// A Result is how a command ended.
type Result struct {
	Code  int   // as a shell reports it: its own, or that of the signal that ended it
	Swept bool  // nothing of it runs any more
	Lost  error // why it was ended, by this process or by the warden

	Foreign bool // some of it was another user's, and could not be ended when the lock was lost
}

// SignalCode returns the exit code of a process that a signal has ended, as a shell reports it.
func SignalCode(s syscall.Signal) int { return 128 + int(s) }

// A SignalError says that a signal to this process has ended what was under way.
type SignalError struct{ Signal syscall.Signal }

func (e SignalError) Error() string { return "ended by a signal: " + e.Signal.String() }

// A Job is a command under a lock, with its warden, and the signals that it shares with this process.
// It decides; what it does to the command is in job_unix.go and job_windows.go. It is used by one
// goroutine.
type Job struct {
	command Command
	warden  *warden
	system  // the command's processes

	signals chan os.Signal
	changes chan change // of the command
	ending  bool        // this process got one of EndingSignals
	foreign bool        // a process of the command could not be ended when the lock was lost
	lease   *lease
}

// A change of a command is its end, or that a signal has stopped it.
type change struct {
	ended   bool
	code    int // as a shell reports it
	stopped syscall.Signal
}

// startLimit is how long the first warden may take to start, on a machine that is busy.
const startLimit = 30 * time.Second

// New makes ready for a command, before there is a lock. Signals that come from here on end the
// waiting for the lock, or go to the command.
func New(c Command) (*Job, error) {
	w, err := startWarden(0, startLimit)
	if err != nil {
		return nil, err
	}
	j := &Job{command: c, warden: w, signals: make(chan os.Signal, 16)}
	for _, s := range EndingSignals {
		j.notify(s)
	}
	// The reader of our standard error may go away. To write there must not end this process,
	// which has a command to watch and a lock to release.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
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
	if j.warden.ended() { // while this process waited for the lock
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

// admit opens the gate. It waits for the warden to know the command, and then looks at the lock again:
// this process may have been paused for any time since it looked last. A pause after this look does no
// harm, because the gate has the deadline, too.
func (j *Job) admit() error {
	if !j.warden.says(knows, j.lease.left()) {
		if j.warden.killed || j.lease.left() == 0 {
			return j.notStarted()
		}
		return errors.New("the command was not started: the process that watches over it has ended, or does not answer")
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

// notStarted is the error of a command for which too little was left of its lock.
func (j *Job) notStarted() error {
	return fmt.Errorf("the command was not started: %w: too little of its time was left", redlock.ErrLost)
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

// watch returns the command's exit code when it has ended, by itself or because the lock was lost.
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

// replaceWarden starts another warden instead of one that has ended, and returns the channel of its
// words, or nil if there is none. Until it is there the command has only this process, so this process
// waits no longer than the command may live. Without a second process the command is ended: if this one
// were stopped, too, the command would outlive its lock.
func (j *Job) replaceWarden() <-chan byte {
	if j.warden.killed { // the command as well
		return nil
	}
	w, err := j.anotherWarden()
	if err != nil {
		j.end(fmt.Errorf("redlock: %q: the process that watches over the command has ended, and another could not be started: %w", j.lease.lock.Name(), err))
		return nil
	}
	j.warden.dismiss()
	j.warden = w
	return w.words
}

// end asks the command to end, because the lock is lost, or for the other reason. The command is killed
// when its time is over, or at once if it cannot be asked.
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

// tellForeign tells once that the lock is lost, but not the command.
func (j *Job) tellForeign() {
	if j.foreign || j.lease.lost == nil || !j.isForeign() {
		return
	}
	if j.foreign = true; j.command.Foreign != nil {
		j.command.Foreign()
	}
}

// sweep ends what the command has left running, and reports whether nothing is left.
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
