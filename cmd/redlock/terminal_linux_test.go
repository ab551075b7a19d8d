package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A screen is the person's end of a terminal.
type screen struct {
	keys *os.File
	text lockedBuffer
	done chan struct{}
}

// atTerminal starts a process as a terminal's session does: it has the terminal for
// its input and output, and is its foreground.
func atTerminal(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	tr.NoError(t, err)
	tr.NoError(t, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	tr.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	tr.NoError(t, err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	tr.NoError(t, cmd.Start())
	tty.Close()
	s := &screen{keys: keys, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for buf := make([]byte, 4096); ; {
			n, err := keys.Read(buf)
			if err != nil { // the last process has left
				return
			}
			s.text.Write(buf[:n])
		}
	}()
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Process.Kill()
		cmd.Wait()
		keys.Close()
		<-s.done
	})
	return s
}

func (s *screen) types(t *testing.T, keys string) {
	t.Helper()
	_, err := s.keys.WriteString(keys)
	tr.NoError(t, err)
}

// shows waits until the text is on the screen, and wipes it.
func (s *screen) shows(t *testing.T, want string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("on the screen: %q", s.text.String())
		}
	}()
	eventually(t, want+" is shown", func() bool {
		s.text.mu.Lock()
		defer s.text.mu.Unlock()
		shown := s.text.b.String()
		_, rest, ok := strings.Cut(shown, want)
		if ok {
			s.text.b.Reset()
			s.text.b.WriteString(rest)
		}
		return ok
	})
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	ctrlZ = "\x1a"
)

func TestTheCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "x", "--", "sh", "-c", `echo ready; read line; echo "got $line"; cat`)
	p.Stderr = nil
	s := atTerminal(t, p.Cmd)
	s.shows(t, "ready")
	s.types(t, "hello\n")
	s.shows(t, "got hello")
	s.types(t, ctrlC)
	assert.Equal(t, 130, p.code(t), "the terminal interrupts the command, and redlock reports it")
	free(t, client(t, f), "x")
}

// shell starts an interactive shell that knows the command.
func shell(t *testing.T, urls []string) *screen {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	p := command(t, urls)
	path := p.Path
	p.Path, p.Args, p.Stderr = bash, []string{"bash", "--norc", "--noprofile", "-i"}, nil
	p.Env = append(p.Env, "PS1=$ ", "TERM=dumb", "HISTFILE=/dev/null", "redlock="+path)
	s := atTerminal(t, p.Cmd)
	s.types(t, "set -b\n") // tell of jobs at once
	return s
}

func TestAJobCanBeStoppedAndContinued(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	s := shell(t, f.URLs())
	s.types(t, "$redlock run --ttl 60s x -- sh -c 'echo re\"\"ady; cat'; echo code=$?\n")
	s.shows(t, "ready")
	s.types(t, ctrlZ)
	s.shows(t, "Stopped")
	s.types(t, "echo at the pro\"\"mpt\n")
	s.shows(t, "at the prompt")
	s.types(t, "fg\n")
	s.shows(t, "$redlock run")
	s.types(t, "he\"llo\n")
	s.shows(t, "he\"llo\r\nhe\"llo") // the terminal's echo, and cat's answer
	s.types(t, ctrlZ)
	s.shows(t, "Stopped")
	s.types(t, "bg\n")
	s.shows(t, "$redlock run")
	s.shows(t, "Stopped") // cat reads from a terminal that is not its own
	s.types(t, "fg\n")
	s.shows(t, "$redlock run")
	s.types(t, ctrlD)
	s.shows(t, "$ ")
	s.types(t, "echo code=$?\n")
	s.shows(t, "code=0")
	free(t, l, "x")
	s.types(t, "exit\n")
}

func TestAJobThatWasStoppedForTooLongIsEnded(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	s := shell(t, f.URLs())
	s.types(t, "$redlock run --ttl 2s x -- sh -c 'echo re\"\"ady; read x; echo ra\"\"n on'\n")
	s.shows(t, "ready")
	s.types(t, ctrlZ)
	s.shows(t, "Stopped")
	lock, err := l.Acquire(t.Context(), "x") // it is not renewed
	tr.NoError(t, err)
	s.types(t, "fg\n")
	s.shows(t, "lock lost")
	s.types(t, "echo code=$?\n")
	s.shows(t, fmt.Sprintf("code=%d", exitLost))
	assert.NotContains(t, s.text.String(), "ran on")
	tr.NoError(t, lock.Release(t.Context()))
	s.types(t, "exit\n")
}
