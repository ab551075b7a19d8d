package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/redlock"
)

const (
	longestLine = 1024            // bytes that a line of a program may have, with its end
	thisMoment  = time.Nanosecond // for which a lock is held whose program knows no deadline
)

// answers are what a program may say to each request, by chaos/PROTOCOL.md: as a pattern, and for
// the error. Numbers have few enough digits for an int64, in nanoseconds.
var answers = map[string]struct {
	form *regexp.Regexp
	text string
}{
	"open":    {regexp.MustCompile(`^ready (-|(extend|fence)(,(extend|fence))?) .+$`), "ready FEATURES TEXT; features are -, or extend, fence, both"},
	"acquire": {regexp.MustCompile(`^(granted( [1-9]\d{0,17})?|failed .+)$`), "granted, granted TOKEN, which is above zero, or failed TEXT"},
	"held":    {regexp.MustCompile(`^(held( [1-9]\d{0,7})?|lost .+)$`), "held [MS], from 1 to 99999999, or lost TEXT"},
	"extend":  {regexp.MustCompile(`^(held( [1-9]\d{0,7})?|(lost|failed) .+)$`), "held [MS], from 1 to 99999999, lost TEXT, or failed TEXT"},
	"release": {regexp.MustCompile(`^(released|failed .+)$`), "released, or failed TEXT"},
}

// A program gives locks of any library, in any language: it is asked for them on its standard input,
// and answers on its standard output, as chaos/PROTOCOL.md says. It is asked by one goroutine, for
// one lock at a time. Its first answer that breaks the protocol is the end of it.
type program struct {
	Config
	fail func() // ends the client, with the first error

	cmd     *exec.Cmd
	stdin   io.WriteCloser
	lines   chan string // closed at the end of its output
	tooLong bool        // why that is; once lines is closed

	kind    history.Lock // Fenced if its locks have tokens
	extends bool         // they are extended when it is asked to
	err     error        // the first
}

// openProgram starts the program and tells it the servers. The error says what was wrong with its
// answer.
func openProgram(c Config, log *history.Log, fail func()) (*program, error) {
	p := &program{Config: c, fail: fail, kind: history.Plain, cmd: exec.Command("sh", "-c", c.Program), lines: make(chan string, 1)}
	p.cmd.Stderr = os.Stderr
	in, out, err := startPiped(p.cmd)
	if err != nil {
		return nil, err
	}
	p.stdin = in
	go p.read(out)
	request := fmt.Sprint("open ", c.TTL.Milliseconds())
	for _, url := range c.URLs {
		request += " " + strings.TrimPrefix(url, "redis://")
	}
	_, ready := p.ask(request, 0)
	if p.err != nil {
		return nil, p.Close()
	}
	features, about, _ := strings.Cut(ready, " ")
	p.extends = strings.Contains(features, "extend")
	if strings.Contains(features, "fence") {
		p.kind = history.Fenced
	}
	return p, log.Add(history.Event{At: history.Now(), Kind: history.Ready, Who: c.Who, Text: about})
}

// read passes on what the program says, line by line.
func (p *program) read(out io.Reader) {
	defer close(p.lines)
	in := bufio.NewScanner(out)
	in.Buffer(nil, longestLine)
	for in.Scan() {
		p.lines <- strings.TrimSpace(in.Text())
	}
	p.tooLong = errors.Is(in.Err(), bufio.ErrTooLong)
}

// ask makes a request and returns the answer, which may take for longer than others by extra. It
// returns nothing once anything went wrong.
func (p *program) ask(request string, extra time.Duration) (verb, rest string) {
	asked, _, _ := strings.Cut(request, " ")
	if len(p.lines) > 0 {
		p.broken("said %q without being asked; it answers each request by one line", <-p.lines)
	}
	if p.err != nil {
		return "", ""
	}
	io.WriteString(p.stdin, request+"\n") // an error means that there will be no answer
	select {
	case line, ok := <-p.lines:
		wanted := answers[asked]
		switch {
		case ok && wanted.form.MatchString(line):
			verb, rest, _ = strings.Cut(line, " ")
		case ok:
			p.broken("answered %q by %q, where chaos/PROTOCOL.md has: %s", asked, line, wanted.text)
		case p.tooLong:
			p.broken("answered %q by a line of more than %d bytes", asked, longestLine)
		default:
			p.broken("ended its output instead of answering %q", asked)
		}
	case <-time.After(p.Patience + extra):
		p.broken("did not answer %q within %v", asked, p.Patience+extra)
	}
	return verb, rest
}

// broken keeps the first error, and ends the client.
func (p *program) broken(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("the program %q "+format, append([]any{p.Program}, args...)...)
		p.fail()
	}
}

// Close ends the program's input and waits until it has ended. The program is killed if that takes
// too long. The error is the first that there was.
func (p *program) Close() error {
	p.stdin.Close()
	wait := p.Patience
	if p.err != nil {
		wait = 0
	}
	limit := time.AfterFunc(wait, func() { p.cmd.Process.Kill() })
	go func() {
		for range p.lines { // what it still says
		}
	}()
	switch err := p.cmd.Wait(); {
	case !limit.Stop():
		p.broken("did not end within %v of the end of its input", wait)
	case err != nil:
		p.broken("ended badly: %w", err)
	}
	return p.err
}

// A refusal is why a program gave no lock. What stands before the first colon is counted.
type refusal string

func (r refusal) Error() string { return string(r) }

// acquire asks for a lock. Nothing can end the wait before its time: the program is not listening.
func (p *program) acquire(_ context.Context, d demand) (lock, error) {
	wait := 2 * p.TTL
	verb, rest := p.ask(fmt.Sprint("acquire ", d.Name, " ", wait.Milliseconds()), wait)
	if verb == "failed" {
		return nil, refusal(rest)
	}
	if verb == "granted" && p.kind.HasToken() != (rest != "") {
		p.broken("answered %q by %q; a lock has a token if fence is among the features", "acquire", verb+" "+rest)
	}
	if p.err != nil {
		return nil, p.err
	}
	l := &programLock{program: p}
	l.fence, _ = strconv.ParseInt(rest, 10, 64)
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l, nil
}

// A programLock is a lock that a program says it has, until it says that it is lost.
type programLock struct {
	grant
	program *program
}

// Remaining asks the program for how long it holds the lock from the beginning of the call on, and
// has it extend the lock in time.
func (l *programLock) Remaining() time.Duration {
	p, left := l.program, l.ask("held")
	if !p.extends || left <= thisMoment || left >= p.TTL/2 {
		return left
	}
	if more := l.ask("extend"); more > 0 || l.ctx.Err() != nil || p.err != nil {
		return more
	}
	return left // it was not extended
}

// ask returns zero if the lock is not held, or not extended.
func (l *programLock) ask(request string) time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	verb, rest := l.program.ask(request, 0)
	switch {
	case verb == "lost":
		l.end(fmt.Errorf("%w: %s", redlock.ErrLost, rest))
	case verb == "held" && rest == "":
		return thisMoment
	case verb == "held":
		ms, _ := strconv.ParseInt(rest, 10, 64)
		return time.Duration(ms) * time.Millisecond
	}
	return 0
}

func (l *programLock) Release(context.Context) error {
	if verb, rest := l.program.ask("release", 0); verb == "failed" {
		return refusal(rest)
	}
	return l.program.err
}
