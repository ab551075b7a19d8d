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
)

// newTerminal returns a terminal and the other end of it, where a person would type.
func newTerminal(t *testing.T) (terminal, person *os.File) {
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

// A watched terminal is the end of a terminal where a person would type and read.
type watched struct {
	keys *os.File
	text lines
	done chan struct{}
}

// atTerminal starts a process in the foreground of a terminal session. The terminal is its input
// and output.
func atTerminal(t *testing.T, cmd *exec.Cmd) *watched {
	t.Helper()
	tty, keys := newTerminal(t)
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

// shows waits until the text is on the screen, and removes everything up to its end.
func (s *watched) shows(t *testing.T, want string) { s.insist(t, "", want) }

// insist types the keys until the text is on the screen. Keys that are typed while
// a shell changes the terminal's mode may be lost.
func (s *watched) insist(t *testing.T, keys, want string) {
	t.Helper()
	deadline := time.Now().Add(endless)
	for {
		if keys != "" {
			s.types(t, keys)
		}
		if s.showsBy(want, time.Now().Add(time.Second)) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q is not shown, but %q", want, s.text.String())
		}
	}
}

// showsBy reports whether the text is on the screen before the deadline, and removes everything up
// to its end.
func (s *watched) showsBy(want string, deadline time.Time) (ok bool) {
	for ; !ok && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.text.mu.Lock()
		var rest string
		if _, rest, ok = strings.Cut(s.text.text.String(), want); ok {
			s.text.text.Reset()
			s.text.text.WriteString(rest)
		}
		s.text.mu.Unlock()
	}
	return ok
}

// answers types a line until cat(1) repeats it. It types a different line each time, because the
// terminal's echoes of a line that is typed twice would look like an answer.
func (s *watched) answers(t *testing.T, line string) {
	t.Helper()
	deadline := time.Now().Add(endless)
	for text := line; time.Now().Before(deadline); text += line {
		s.types(t, text+"\n")
		if s.showsBy(text+"\r\n"+text+"\r\n", time.Now().Add(time.Second)) { // the terminal's echo, and cat's
			return
		}
	}
	t.Fatalf("cat does not answer %q, but %q is shown", line, s.text.String())
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestDeletionAsksAtTheTerminal(t *testing.T) {
	t.Parallel()
	f := five(t)
	put(t, f.URLs(), "job", "v")
	for _, test := range []struct{ command, asks, answer, says string }{
		{"reset", "Type yes to reset: ", "no", "not confirmed"},
		{"reset", "Type yes to reset: ", "yes", "5 of 5 servers have a new record"},
		{"release job --force", "Type the name (job) to delete it: ", "yes", "not confirmed"},
		{"release job --force", "Type the name (job) to delete it: ", "job", "deleted on 5 of 5 servers"},
	} {
		assert.NotEmpty(t, has(t, f.URLs()[0], "job"))
		s := atTerminal(t, command(t, f.URLs(), append(strings.Fields(test.command), "--dial-timeout", "10s")...).Cmd)
		if test.command != "reset" {
			s.shows(t, "VALUE")
		}
		s.shows(t, test.asks)
		s.types(t, test.answer+"\n")
		s.shows(t, test.says)
	}
	assert.Empty(t, has(t, f.URLs()[0], "job"))
}
