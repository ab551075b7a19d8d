package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// A Process is a client as its parent sees it. Its methods are not for concurrent use.
type Process struct {
	who    int
	cmd    *exec.Cmd
	stdin  io.Closer
	done   chan struct{} // closed after the end of the process, when its whole history was read
	err    error         // reason for the end, after done
	killed bool
	one    *os.Process // stopped by PauseOne
}

// Start runs this program again as a client, and adds its history to log. It calls broken if the
// client ends by itself, with an exit code above zero.
//
// The client is in a process group of its own, because the terminal's Ctrl-C would end it before it
// can release its locks. If this process dies, the client's standard input ends. If the client is
// stopped at that moment, a hangup wakes it: the kernel sends one to stopped processes of a group
// whose parents have ended.
func Start(c Config, log *history.Log, broken func()) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	setting, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env+"="+string(setting))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said bytes.Buffer // reason of a failure
	cmd.Stderr = io.MultiWriter(os.Stderr, &said)
	cmd.WaitDelay = time.Second // a remaining child of a killed client may hold standard error open
	stdin, stdout, err := startPiped(cmd)
	if err != nil {
		return nil, err
	}
	p := &Process{who: c.Who, cmd: cmd, stdin: stdin, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		err := history.Read(stdout, func(e history.Event) { log.Add(e) })
		p.err = errors.Join(err, cmd.Wait())
		if text := bytes.TrimSpace(said.Bytes()); p.err != nil && len(text) > 0 {
			p.err = fmt.Errorf("%w: %s", p.err, text[max(0, len(text)-2048):])
		}
		if cmd.ProcessState.ExitCode() > 0 {
			broken()
		}
	}()
	return p, nil
}

// startPiped starts a command, and returns its input and output.
func startPiped(cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser, err error) {
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, err
	}
	return in, out, cmd.Start()
}

// signal sends sig to the process and to the program that gives its locks.
func (p *Process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(syscall.Signal(0)); err != nil { // the process has ended, so another group may have its number
		return err
	}
	return os.NewSyscallError("kill", syscall.Kill(-p.cmd.Process.Pid, sig))
}

// Pause stops the process at any point.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStop(p.cmd.Process.Pid)
}

// Resume continues a paused process.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// PauseOne stops the process, or one of its child processes, in any group.
func (p *Process) PauseOne() (err error) {
	all, err := tree(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	pid := all[rand.IntN(len(all))]
	if p.one, err = os.FindProcess(pid); err != nil {
		return err
	}
	return p.signalOne(syscall.SIGSTOP)
}

// ResumeOne continues the process that PauseOne stopped.
func (p *Process) ResumeOne() error {
	defer p.one.Release()
	return p.signalOne(syscall.SIGCONT)
}

func (p *Process) signalOne(sig syscall.Signal) error {
	if err := p.one.Signal(sig); !errors.Is(err, os.ErrProcessDone) { // a command may end at any time
		return err
	}
	return nil
}

// tree returns the IDs of a process and of all its descendants.
func tree(root int) (all []int, err error) {
	text, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	below := map[int][]int{}
	for line := range strings.Lines(string(text)) {
		var pid, parent int
		fmt.Sscan(line, &pid, &parent)
		below[parent] = append(below[parent], pid)
	}
	all = []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, below[all[i]]...)
	}
	return all, nil
}

// Kill ends the process at once, even a paused process, and returns when its whole output is in the
// log.
func (p *Process) Kill() error {
	p.killed = true
	err := p.signal(syscall.SIGKILL)
	<-p.done
	p.stdin.Close()
	return err
}

// Stop asks the process to end, and kills it if it does not end.
func (p *Process) Stop(limit time.Duration) error {
	if p.killed {
		return nil
	}
	p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("client %d did not end within %v", p.who, limit)
	}
	if p.err != nil {
		return fmt.Errorf("client %d: %w", p.who, p.err)
	}
	return nil
}
