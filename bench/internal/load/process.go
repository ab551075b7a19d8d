package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
)

// A process is a client process, seen by its parent.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    io.Reader
	scrub  endpoint.Scrubber
	stderr bytes.Buffer // to be read when it has ended
}

// startProcess starts it and gives it its job. When ctx ends its stdin is closed, upon which it
// stops, or else is killed.
func startProcess(ctx context.Context, job Job) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("load: cannot find this program to start it as a client: %w", err)
	}
	p := &process{
		name: fmt.Sprintf("client process %d of %d", job.Process+1, job.Load.Processes), scrub: endpoint.NewScrubber(job.URLs),
	}
	p.cmd = exec.CommandContext(ctx, program)
	p.cmd.Env = append(os.Environ(), clientEnv+"=1")
	p.cmd.Stderr = &p.stderr
	p.stdin, err = p.cmd.StdinPipe()
	if err == nil {
		p.out, err = p.cmd.StdoutPipe()
	}
	if err == nil {
		p.cmd.Cancel = p.stdin.Close
		p.cmd.WaitDelay = 2 * stopLimit
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("load: %s: %w", p.name, err)
	}
	// A process that is dead already has a better error than this one.
	_ = p.send(job)
	return p, nil
}

func (p *process) send(v any) error {
	if err := json.NewEncoder(p.stdin).Encode(v); err != nil {
		return fmt.Errorf("load: %s does not listen: %w", p.name, err)
	}
	return nil
}

// follow calls ready when the process is, and returns its last message when it has ended.
func (p *process) follow(ready func()) (result message, err error) {
	lines := json.NewDecoder(p.out)
	for result.Trial == nil && err == nil {
		var m message
		if err = lines.Decode(&m); err == nil {
			switch {
			case m.Ready:
				ready()
			case m.Error != "":
				err = fmt.Errorf("load: %s: %s", p.name, m.Error)
			default:
				result = m
			}
		}
	}
	_ = p.stdin.Close() // which ends it, if it has not ended
	// The rest is read, because a process that cannot write does not end.
	_, _ = io.Copy(io.Discard, p.out)
	ended := p.cmd.Wait()
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("load: %s ended early (%v): %s", p.name, ended, p.scrub.Clean(end(p.stderr.String())))
	}
	return result, err
}

// end is the last lines of a text, whole ones: half a password could not be recognized.
func end(text string) string {
	const most = 4096
	if len(text) > most {
		_, text, _ = strings.Cut(text[len(text)-most:], "\n")
	}
	return strings.TrimSpace(text)
}
