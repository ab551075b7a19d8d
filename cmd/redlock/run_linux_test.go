package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/report"
	"github.com/redquorum/redquorum/redlock"
)

// TestPersonSeesTheHolder: a person sees the holder during the wait, but not after the command has
// started.
func TestPersonSeesTheHolder(t *testing.T) {
	t.Parallel()
	f := five(t)
	lock, err := client(t, f).Acquire(t.Context(), "x", redlock.Owner("web-3"))
	tr.NoError(t, err)
	p := command(t, f.URLs(), "run", "x", "--", "echo", "mine")
	p.Stderr = nil
	s := atTerminal(t, p.Cmd)
	s.shows(t, "waiting for x: held by web-3 for ")
	tr.NoError(t, lock.Release(t.Context()))
	s.shows(t, report.EraseLine+"mine\r\n")
	assert.Zero(t, p.code(t))

	lock, err = client(t, f).Acquire(t.Context(), "x", redlock.Owner("web-3"))
	tr.NoError(t, err)
	isNamed := false
	for try := 0; !isNamed && try < 10; try++ { // without a wait, the caller is refused before a busy server has reported the holder
		p = command(t, f.URLs(), "run", "--no-wait", "x", "--", "echo", "mine")
		p.Stderr = nil
		s = atTerminal(t, p.Cmd)
		s.shows(t, "redlock: x: held by ")
		isNamed = s.showsBy("web-3 since ", time.Now().Add(time.Second))
		assert.Equal(t, exitHeld, p.code(t))
	}
	assert.True(t, isNamed)
	tr.NoError(t, lock.Release(t.Context()))
}

// shell starts an interactive shell that knows the command. Its node timeout suits a TTL of 10s.
func shell(t *testing.T, urls []string) *watched {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	p := command(t, urls)
	path := p.Path
	p.Path, p.Args, p.Stderr = bash, []string{"bash", "--norc", "--noprofile", "-i"}, nil
	p.Env = append(p.Env, "PS1=$ ", "TERM=dumb", "HISTFILE=/dev/null", "redlock="+path, "REDLOCK_NODE_TIMEOUT=8s")
	return atTerminal(t, p.Cmd)
}

func TestJobCanBeStoppedAndContinued(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	s := shell(t, f.URLs())
	s.types(t, "$redlock run --ttl 60s x -- cat\n")
	s.answers(t, "one") // the shell has finished its changes of the terminal
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

func TestJobStoppedForTooLongIsEnded(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	s := shell(t, f.URLs())
	s.types(t, "$redlock run --ttl 10s --kill-after 0s x -- cat\n")
	s.answers(t, "one")
	s.insist(t, ctrlZ, "Stopped")
	lock, err := l.Acquire(t.Context(), "x") // the lock is not renewed
	tr.NoError(t, err)
	s.types(t, "fg\n")
	s.shows(t, "lock lost")
	s.insist(t, "echo code=$?\n", fmt.Sprintf("code=%d\r\n", exitLost))
	tr.NoError(t, lock.Release(t.Context()))
	s.types(t, "exit\n")
}

func TestStoppedJobEndsWithoutLingering(t *testing.T) {
	t.Parallel()
	f := five(t)
	s := shell(t, f.URLs())
	s.types(t, "$redlock run --ttl 60s --min-hold 1h x -- cat\n")
	s.answers(t, "one")
	s.insist(t, ctrlZ, "Stopped")
	s.types(t, "kill %1\n")
	s.insist(t, "\n", "Exit 143") // printed by the shell before a prompt
	free(t, client(t, f), "x")
	s.types(t, "exit\n")
}

// The terminal has one foreground process group. The command cannot be alone in it if it is part of
// a pipeline, such as "redlock run ... | less".
func TestReaderInAPipelineOwnsTheTerminal(t *testing.T) {
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

func TestStoppedCommandCanBeEnded(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "x", "--", "sh", "-c", "echo $$; kill -STOP $$").begin(t)
	pid, err := p.lines.ReadString('\n')
	tr.NoError(t, err)
	eventually(t, "it is stopped", func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
		tr.NoError(t, err)
		return strings.Contains(string(stat), ") T ")
	})
	p.signal(t, syscall.SIGTERM)
	assert.Equal(t, 128+int(syscall.SIGTERM), p.code(t))
	free(t, client(t, f), "x")
}

// In the namespace, the process group that started redlock has no ID. The wait for the end of the
// command's group must not wait for the warden.
func TestRedlockInItsOwnPIDNamespaceEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	f := five(t)
	p := command(t, f.URLs(), "run", "--ttl", "10m", "x", "--", "sh", "-c", "exit 4")
	p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	err := p.Start()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("no PID namespaces for us here")
	}
	tr.NoError(t, err)
	assert.Equal(t, 4, p.code(t))
	assert.Empty(t, p.stderr.String())
	free(t, client(t, f), "x")
}

// TestProcessOneReapsOrphans: in a container, no other process reaps the orphans of password
// commands.
func TestProcessOneReapsOrphans(t *testing.T) {
	t.Parallel()
	unshare, err := exec.LookPath("unshare")
	if err != nil || exec.Command(unshare, "--pid", "--fork", "--mount-proc", "true").Run() != nil {
		t.Skip("no PID namespaces for us here")
	}
	f := five(t)
	runs := filepath.Join(t.TempDir(), "runs")
	for _, args := range [][]string{{"serve", "--listen", "unix:" + filepath.Join(t.TempDir(), "s")}, {"hold", "--wait", "1h", "x"}} {
		tr.NoError(t, os.WriteFile(runs, nil, 0o600))
		leaves := "sh -c 'true & exec true'; (sleep 0.01 &) ; echo >>" + runs + "; echo secret"
		p := command(t, f.URLs(), append(args, "--password-command", leaves)...)
		p.Args = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", p.Path}, p.Args[1:]...)
		p.Path = unshare
		in, err := p.StdinPipe()
		tr.NoError(t, err)
		defer in.Close()
		p.begin(t)
		isRun := func() bool {
			text, err := os.ReadFile(runs)
			return err == nil && len(text) > 2
		}
		eventually(t, "the command has run", isRun)
		children := func(of string, format string) []string {
			out, _ := exec.Command("ps", "--ppid", of, "-o", format).Output() // fails if no process matches
			return strings.Fields(string(out))
		}
		one := children(strconv.Itoa(p.Process.Pid), "pid=")
		tr.Len(t, one, 1)
		eventually(t, args[0]+" leaves no zombies", func() bool { return !slices.Contains(children(one[0], "stat="), "Z") })
	}
}

// worldReadable returns a copy of this test's program that other users can run, as its owner if it is setuid.
func worldReadable(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "redlock")
	tr.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	tr.NoError(t, os.Chmod(dir, 0o755))
	text, err := os.ReadFile(self(t))
	tr.NoError(t, err)
	path := filepath.Join(dir, "program")
	tr.NoError(t, os.WriteFile(path, text, 0o755))
	tr.NoError(t, os.Chmod(path, mode))
	return path
}

// TestCommandOfAnotherUserIsReported: redlock cannot end such a command when its lock is lost, so
// another client can have the lock at the same time. The user learns that immediately, even if only
// the warden is alive.
func TestCommandOfAnotherUserIsReported(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to start a command that becomes root")
	}
	f := five(t)
	redlock, setuid := worldReadable(t, 0o755), worldReadable(t, 0o755|os.ModeSetuid)
	begin := func(name string, argv ...string) (*process, io.Closer) {
		p := command(t, f.URLs(), append([]string{"run", "--ttl", "10s", "--kill-after", "0s", name, "--"}, argv...)...).role("root", "")
		p.Path, p.SysProcAttr = redlock, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		in, err := p.StdinPipe()
		tr.NoError(t, err)
		p.begin(t).says(t, "ready")
		return p, in
	}
	lose := func(name string) {
		for _, url := range f.URLs() {
			ask(t, url, "SET", name, "another's", "PX", "600000")
		}
	}
	for name, argv := range map[string][]string{"itself": {setuid}, "below a shell": {"sh", "-c", setuid + "; echo"}} {
		p, in := begin(name, argv...)
		lose(name)
		eventually(t, "the loss is told", func() bool {
			return strings.Contains(p.stderr.String(), "runs as another user, so redlock cannot end it: another client can have the lock")
		})
		tr.NoError(t, in.Close())
		assert.Equal(t, exitLost, p.code(t))
		assert.NotContains(t, p.stderr.String(), "was ended", name)
	}

	p, in := begin("widowed", setuid)
	defer in.Close()
	tr.NoError(t, p.Process.Kill())
	eventually(t, "the warden tells", func() bool {
		return strings.Contains(p.stderr.String(), "runs as another user and cannot be killed: another client can have the lock")
	})
}
