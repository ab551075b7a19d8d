package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"
)

// These tests stop or kill a process of "redlock run" before one of its system calls, for each call
// that matters. A tracer (role "trace") counts the calls of all threads together; strace counts
// them for each thread. A stopped process continues only after another client has had the lock.

// TestCommandNeverOutlivesItsLockWhereverRedlockIsStopped: redlock, its warden or its gate is
// stopped or killed. The command has a process group of its own.
func TestCommandNeverOutlivesItsLockWhereverRedlockIsStopped(t *testing.T) {
	t.Parallel()
	steps := map[string]int{"redlock": 16, "warden": 8, "gate": 8}
	if testenv.Long() {
		steps = map[string]int{"redlock": 200, "warden": 40, "gate": 40}
	}
	f := five(t)
	next := client(t, f, redlock.TTL(endless), redlock.Renew(false))
	running := make(chan bool, 8)
	var all sync.WaitGroup
	for target, most := range steps {
		for _, fault := range []string{"stop", "kill"} {
			for step := 1; step <= most; step++ {
				running <- true
				all.Go(func() {
					defer func() { <-running }()
					for !interrupt(t, f, next, interruption{target, fault, step}) {
					}
				})
			}
		}
	}
	all.Wait()
}

// An interruption is a fault before one system call of a process.
type interruption struct {
	target string // redlock, warden or gate
	fault  string // stop or kill
	step   int    // from 1
}

func (i interruption) String() string { return fmt.Sprintf("%s-%s-%d", i.target, i.fault, i.step) }

// interrupt runs a command under a lock, interrupts the run, and fails if the command has done anything
// after the next client got the lock. It returns false if a busy machine took the lock before the
// step, or gave none.
func interrupt(t *testing.T, f fleet.Fleet, next *redlock.Locker, i interruption) bool {
	h := &holder{n: i.step, name: i.String(), file: filepath.Join(t.TempDir(), "oracle")}
	var urls []string
	for _, url := range f.URLs() {
		r, err := relay.New(strings.TrimPrefix(url, "redis://"))
		tr.NoError(t, err)
		t.Cleanup(func() { r.Close() })
		h.relays, urls = append(h.relays, r), append(urls, r.URL())
	}
	p := command(t, urls, "run", "--ttl", "2s", i.String(), "--", "timeout", "60", self(t))
	p.Env = slices.DeleteFunc(p.Env, func(v string) bool { return strings.HasPrefix(v, commandEnv+"=") })
	p.Env = append(p.Env, "REDLOCK_TEST_TRACE="+fmt.Sprint(i.target, " ", i.fault, " ", i.step))
	p.role("trace", h.file)
	in, err := p.StdinPipe()
	tr.NoError(t, err)
	p.begin(t)
	for {
		line, err := p.lines.ReadString('\n')
		if err == io.EOF && p.code(t) == 0 && regexp.MustCompile("lock lost|no quorum").MatchString(p.stderr.String()) {
			return false
		}
		if !assert.NoError(t, err, "%s: %s", i, p.stderr.String()) {
			return true
		}
		if strings.HasPrefix(line, "over") { // the process had fewer steps
			break
		}
		if strings.HasPrefix(line, "reached") {
			if i.target != "redlock" {
				h.cutOff()
			}
			lock, err := next.Acquire(context.WithoutCancel(t.Context()), i.String())
			if !assert.NoError(t, err, "%s", i) {
				return true
			}
			granted := grantedAt(t, f, lock)
			in.Close()                   // the stopped process continues
			io.Copy(io.Discard, p.lines) // until redlock, the gate and the command have ended
			if _, err := os.Stat(h.file); err == nil {
				if text, _ := os.ReadFile(h.file); len(text) > 0 {
					last := lastSign(t, h.file)
					assert.Less(t, last, granted, "%s: the command worked on for %v, and another had its lock (%s)", i, last.Sub(granted), strings.TrimSpace(line))
				}
			}
			assert.NoError(t, lock.Release(context.WithoutCancel(t.Context())))
			break
		}
	}
	in.Close()
	io.Copy(io.Discard, p.lines)
	return true
}

// A tracer interrupts one process of a run.
type tracer struct {
	interruption
	root    int         // redlock
	victim  int         // the process to interrupt, once it is known
	process map[int]int // process of each traced thread
	counts  bool        // the first step was reached
	steps   int
	frozen  map[int]bool // threads of the victim that wait for the end of the interruption
	reached bool
	over    bool // the interruption has ended
}

const (
	syscallStop = unix.SIGTRAP | 0x80
	freeze      = syscall.Signal(40) // interrupts a thread; no process gets it
)

// noise has the system calls of Go's scheduler and memory. Their number differs from run to run.
var noise = []uint64{
	unix.SYS_FUTEX, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL, unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_MADVISE, unix.SYS_MMAP,
	unix.SYS_MUNMAP, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_TGKILL,
	unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_MPROTECT, unix.SYS_RESTART_SYSCALL, unix.SYS_SCHED_GETAFFINITY,
}

// trace is a role: it runs redlock as REDLOCK_TEST_TRACE specifies, prints "reached" with the
// number of the call, and ends the interruption when its input ends. It prints "over" if the
// process had fewer steps.
func trace() int {
	runtime.LockOSThread() // ptrace(2) belongs to the thread that started it
	x := &tracer{process: map[int]int{}, frozen: map[int]bool{}}
	fmt.Sscan(os.Getenv("REDLOCK_TEST_TRACE"), &x.target, &x.fault, &x.step)
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), commandEnv+"=1", roleEnv+"=hold")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := c.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	x.root = c.Process.Pid
	x.process[x.root] = x.root
	if x.target == "redlock" {
		x.victim = x.root
	}
	over := make(chan bool)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	options := false
	for {
		var s syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &s, syscall.WNOHANG|syscall.WALL, nil)
		switch {
		case err == syscall.ECHILD:
			return 0
		case err != nil:
			continue
		case tid == 0:
			select {
			case <-over:
				x.over, over = true, nil
				for tid := range x.frozen {
					x.leave(tid)
				}
			default:
				time.Sleep(50 * time.Microsecond)
			}
			continue
		case s.Exited() || s.Signaled():
			delete(x.process, tid)
			delete(x.frozen, tid)
			if tid == x.victim && !x.reached {
				fmt.Println("over")
				syscall.Kill(x.root, syscall.SIGKILL)
			}
			if tid == x.root {
				return 0
			}
			continue
		}
		if !options {
			options = true
			syscall.PtraceSetOptions(tid, syscall.PTRACE_O_TRACESYSGOOD|syscall.PTRACE_O_TRACECLONE|syscall.PTRACE_O_TRACEFORK|syscall.PTRACE_O_TRACEVFORK|syscall.PTRACE_O_TRACEEXEC)
		}
		x.stopped(tid, s)
	}
}

// leave ends the tracing of a stopped thread, and lets the thread continue.
func (x *tracer) leave(tid int) {
	delete(x.process, tid)
	delete(x.frozen, tid)
	syscall.PtraceDetach(tid)
}

// stopped continues a thread that has stopped, unless the interruption must keep it stopped.
func (x *tracer) stopped(tid int, s syscall.WaitStatus) {
	if _, known := x.process[tid]; !known {
		x.process[tid] = groupOfThread(tid)
	}
	mine := x.victim != 0 && x.process[tid] == x.victim
	switch {
	case mine && x.over:
		x.leave(tid)
		return
	case mine && x.reached:
		x.frozen[tid] = true
		return
	}
	pass := 0
	switch sig := s.StopSignal(); {
	case s.TrapCause() == syscall.PTRACE_EVENT_EXEC:
		x.executed(tid)
		if x.process[tid] == 0 {
			return // detached
		}
	case s.TrapCause() > 0: // a new thread or process reports its own stop
	case sig == syscallStop:
		if mine && x.due(tid) {
			return
		}
	case sig == syscall.SIGTRAP, sig == syscall.SIGSTOP && !x.seen(tid), sig == freeze:
	default:
		pass = int(sig)
	}
	x.cont(tid, pass)
}

// begun are the threads that have reported their first stop.
var begun = map[int]bool{}

func (x *tracer) seen(tid int) bool {
	defer func() { begun[tid] = true }()
	return begun[tid]
}

func (x *tracer) cont(tid, signal int) {
	if x.victim == x.process[tid] {
		syscall.PtraceSyscall(tid, signal)
	} else {
		syscall.PtraceCont(tid, signal)
	}
}

// executed checks the program of a process. Only redlock and the victim are traced.
func (x *tracer) executed(tid int) {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", tid))
	words := strings.Split(string(bytes.TrimRight(args, "\x00")), "\x00")
	switch {
	case tid == x.root:
	case x.victim == 0 && len(words) > 1 && words[1] == "__"+x.target:
		x.victim = tid
	default:
		if tid == x.victim && !x.reached { // the gate has become the command
			x.victim = -1
			fmt.Println("over")
			syscall.Kill(x.root, syscall.SIGKILL)
		}
		x.leave(tid)
	}
}

// due counts a system call of the victim, and interrupts it before the call with the chosen number.
func (x *tracer) due(tid int) bool {
	var info [88]byte // struct ptrace_syscall_info
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, 0x420e, uintptr(tid), uintptr(len(info)), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 || info[0] != 1 { // not the entry of a call
		return false
	}
	call := *(*uint64)(unsafe.Pointer(&info[24]))
	arg := func(i int) uint64 { return *(*uint64)(unsafe.Pointer(&info[32+8*i])) }
	if slices.Contains(noise, call) {
		return false
	}
	switch x.target {
	case "redlock": // counts from its first order
		x.counts = x.counts || call == unix.SYS_WRITE && arg(2) == 9
	case "warden": // counts from its first message
		x.counts = x.counts || call == unix.SYS_WRITE && arg(2) == 1
	case "gate": // counts from its first look at the connection
		x.counts = x.counts || call == unix.SYS_GETSOCKOPT
	}
	if !x.counts {
		return false
	}
	if x.steps++; x.steps != x.step {
		return false
	}
	x.reached = true
	if x.fault == "kill" {
		syscall.Kill(x.victim, syscall.SIGKILL)
	} else {
		x.frozen[tid] = true
		for other, process := range x.process {
			if process == x.victim && other != tid {
				unix.Tgkill(x.victim, other, freeze)
			}
		}
	}
	fmt.Println("reached", call)
	return true
}

// groupOfThread returns the process of a thread.
func groupOfThread(tid int) int {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return tid
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if of, is := strings.CutPrefix(lines.Text(), "Tgid:"); is {
			process, _ := strconv.Atoi(strings.TrimSpace(of))
			return process
		}
	}
	return tid
}

func init() { roles["trace"] = trace }
