package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/redlock"
)

// personsTerminal returns a terminal and the person's end of it.
func personsTerminal(t *testing.T) (terminal, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	tr.NoError(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	tr.NoError(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	tr.NoError(t, err)
	t.Cleanup(func() { terminal.Close() })
	return terminal, person
}

// A watched terminal is the person's end of a terminal.
type watched struct {
	keys *os.File
	text lines
	done chan struct{}
}

// atTerminal starts a process as a terminal's session does: it has the terminal for
// its input and output, and is its foreground.
func atTerminal(t *testing.T, cmd *exec.Cmd) *watched {
	t.Helper()
	tty, keys := personsTerminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	tr.NoError(t, cmd.Start())
	tty.Close()
	s := &watched{keys: keys, done: make(chan struct{})}
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

func (s *watched) types(t *testing.T, keys string) {
	t.Helper()
	_, err := s.keys.WriteString(keys)
	tr.NoError(t, err)
}

// shows waits until the text is on the screen, and wipes what is there up to it.
func (s *watched) shows(t *testing.T, want string) { s.insist(t, "", want) }

// insist types the keys until the text is on the screen. What is typed while a
// shell changes the terminal's mode may be lost.
func (s *watched) insist(t *testing.T, keys, want string) {
	t.Helper()
	var again time.Time
	for deadline := time.Now().Add(endless); ; time.Sleep(time.Millisecond) {
		s.text.mu.Lock()
		shown := s.text.text.String()
		_, rest, ok := strings.Cut(shown, want)
		if ok {
			s.text.text.Reset()
			s.text.text.WriteString(rest)
		}
		s.text.mu.Unlock()
		switch now := time.Now(); {
		case ok:
			return
		case now.After(deadline):
			t.Fatalf("%q is not shown, but %q", want, shown)
		case keys != "" && now.After(again):
			s.types(t, keys)
			again = now.Add(time.Second)
		}
	}
}

// answers types a line until cat(1) repeats it.
func (s *watched) answers(t *testing.T, line string) {
	t.Helper()
	s.insist(t, line+"\n", line+"\r\n"+line+"\r\n") // the terminal's echo, and cat's
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// The commands here are no shells: one that gets a signal while it forks may miss
// it.
func TestTheCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "x", "--", "cat")
	p.Stderr = nil
	s := atTerminal(t, p.Cmd)
	s.answers(t, "hello")
	s.types(t, ctrlC)
	assert.Equal(t, 130, p.code(t), "the terminal interrupts the command, and redlock reports it")
	free(t, client(t, f), "x")
}

// shell starts an interactive shell that knows the command.
func shell(t *testing.T, urls []string) *watched {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	p := command(t, urls)
	path := p.Path
	p.Path, p.Args, p.Stderr = bash, []string{"bash", "--norc", "--noprofile", "-i"}, nil
	p.Env = append(p.Env, "PS1=$ ", "TERM=dumb", "HISTFILE=/dev/null", "redlock="+path)
	return atTerminal(t, p.Cmd)
}

func TestAJobCanBeStoppedAndContinued(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	s := shell(t, f.URLs())
	s.types(t, "$redlock run --ttl 60s x -- cat\n")
	s.answers(t, "one") // so the shell, too, has done what it does with the terminal
	for _, line := range []string{"two", "three"} {
		s.insist(t, ctrlZ, "Stopped")
		_, err := l.TryAcquire(t.Context(), "x")
		assert.ErrorIs(t, err, redlock.ErrHeld, "until its TTL is over")
		s.types(t, "fg\n")
		s.shows(t, "$redlock run")
		s.answers(t, line)
	}
	s.types(t, ctrlC)
	s.insist(t, "echo code=$?\n", "code=130\r\n")
	free(t, l, "x")
	s.types(t, "exit\n")
}

func TestAJobThatWasStoppedForTooLongIsEnded(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	s := shell(t, f.URLs())
	s.types(t, "$redlock run --ttl 2s x -- cat\n")
	s.answers(t, "one")
	s.insist(t, ctrlZ, "Stopped")
	lock, err := l.Acquire(t.Context(), "x") // it is not renewed
	tr.NoError(t, err)
	s.types(t, "fg\n")
	s.shows(t, "lock lost")
	s.insist(t, "echo code=$?\n", fmt.Sprintf("code=%d\r\n", exitLost))
	tr.NoError(t, lock.Release(t.Context()))
	s.types(t, "exit\n")
}

func TestAStoppedJobThatIsEndedDoesNotLinger(t *testing.T) {
	t.Parallel()
	f := five(t)
	s := shell(t, f.URLs())
	s.types(t, "$redlock run --ttl 60s --min-hold 1h x -- cat\n")
	s.answers(t, "one")
	s.insist(t, ctrlZ, "Stopped")
	s.types(t, "kill %1\n")
	s.insist(t, "\n", "Exit 143") // which the shell tells before a prompt
	free(t, client(t, f), "x")
	s.types(t, "exit\n")
}

// The terminal has one foreground. It is not for the command alone where that is part
// of a pipeline, as of "redlock run ... | less".
func TestInAPipelineWhoeverReadsFromTheTerminalHasIt(t *testing.T) {
	t.Parallel()
	f := five(t)
	s := shell(t, f.URLs())
	ask := `sh -c 'read y </dev/tty; echo "got=$y"'`
	for line, pipeline := range map[string]string{
		"one": "$redlock run x -- echo | " + ask,
		"two": "echo | $redlock run x -- " + ask,
	} {
		s.types(t, pipeline+"\n")
		s.insist(t, line+"\n", "got="+line+"\r\n")
	}
	s.insist(t, "echo code=$?\n", "code=0\r\n")
	s.types(t, "echo | $redlock run x -- sh -c 'echo rea''dy; exec sleep 1000'\n")
	s.shows(t, "ready\r\n")
	s.types(t, ctrlC)
	s.insist(t, "echo code=$?\n", "code=130\r\n")
	free(t, client(t, f), "x")
	s.types(t, "exit\n")
}
