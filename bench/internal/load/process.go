package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// A process is a client process, seen by its parent.
type process struct {
	number int
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    io.Reader
	scrub  scrubber
	stderr *tail
}

// startProcess starts it and gives it its assignment. When ctx ends its stdin is closed, upon which
// it stops, or else is killed.
func startProcess(ctx context.Context, job Job, number int) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("load: cannot find this program to start it as a client: %w", err)
	}
	p := &process{
		number: number, name: fmt.Sprintf("client process %d of %d", number+1, job.Load.Processes),
		scrub: newScrubber(job.URLs), stderr: &tail{},
	}
	p.cmd = exec.CommandContext(ctx, program)
	p.cmd.Env = append(os.Environ(), clientEnv+"=1")
	p.cmd.Stderr = p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("load: %s: %w", p.name, err)
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, fmt.Errorf("load: %s: %w", p.name, err)
	}
	p.cmd.Cancel = p.stdin.Close
	p.cmd.WaitDelay = 2 * stopLimit
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("load: %s: %w", p.name, err)
	}
	// A process that is dead already has a better error than this one.
	_ = p.send(assignment{Job: job, Process: number})
	return p, nil
}

func (p *process) send(v any) error {
	if err := json.NewEncoder(p.stdin).Encode(v); err != nil {
		return fmt.Errorf("load: %s does not listen: %w", p.name, err)
	}
	return nil
}

// follow adds up the process's messages until it has ended. To end without a result is an error.
func (p *process) follow(c *collector) error {
	var failed error
	lines, result := json.NewDecoder(p.out), false
	for failed == nil {
		var m message
		err := lines.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			failed = io.EOF // no error so far
		case err != nil:
			failed = fmt.Errorf("load: %s cannot be understood: %w", p.name, err)
		case m.Error != "":
			failed = fmt.Errorf("load: %s: %s", p.name, m.Error)
		default:
			result = result || m.Result != nil
			failed = c.add(p.number, m)
		}
	}
	_ = p.stdin.Close() // which ends it, if it has not ended
	// The rest is read, because a process that cannot write does not end.
	_, _ = io.Copy(io.Discard, p.out)
	err := p.cmd.Wait()
	switch {
	case failed != io.EOF:
		return failed
	case !result:
		how := "exit status 0"
		if err != nil {
			how = err.Error()
		}
		return fmt.Errorf("load: %s ended early (%s): %s", p.name, how, p.scrub.clean(p.stderr.String()))
	}
	return nil
}

// A tail keeps the end of what is written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes, tailLines = 4096, 20

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if n := len(t.text) - tailBytes; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(b), nil
}

// String is the last lines, whole ones.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.text))
	if len(t.text) == tailBytes {
		_, text, _ = strings.Cut(text, "\n")
	}
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
