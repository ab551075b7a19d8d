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
)

// longestLine is how many bytes a line of a program may have, with its end.
const longestLine = 1024

// answers are what a program may say to each request, by chaos/PROTOCOL.md: as a pattern, and for
// the error. Numbers have few enough digits for an int64, in nanoseconds.
var answers = map[string]struct {
	form *regexp.Regexp
	text string
}{
	"open":    {regexp.MustCompile(`^ready .+$`), "ready TEXT"},
	"acquire": {regexp.MustCompile(`^(granted|failed .+)$`), "granted, or failed TEXT"},
	"held":    {regexp.MustCompile(`^(held( [1-9]\d{0,7})?|lost .+)$`), "held [MS], from 1 to 99999999, or lost TEXT"},
	"release": {regexp.MustCompile(`^(released|failed .+)$`), "released, or failed TEXT"},
}

// A program gives locks of any library, in any language: it is asked for them on its standard input,
// and answers on its standard output, as chaos/PROTOCOL.md says. It is asked by one goroutine, for
// one lock at a time. Its first answer that breaks the protocol is the end of it.
type program struct {
	Config
	fail func() // ends the client, with the first error
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	err  error // the first
}

// openProgram starts the program and tells it the servers. The error says what was wrong with its
// answer.
func openProgram(c Config, fail func()) (library, error) {
	p := &program{Config: c, fail: fail, cmd: exec.Command("sh", "-c", c.Other)}
	p.cmd.Stderr = os.Stderr
	in, out, err := startPiped(p.cmd)
	if err != nil {
		return library{}, err
	}
	p.in, p.out = in, bufio.NewScanner(out)
	p.out.Buffer(nil, longestLine)
	_, about := p.ask(fmt.Sprintf("open %d %s", c.TTL.Milliseconds(), strings.Join(c.addrs(), " ")), 0)
	if p.err != nil {
		return library{}, p.close()
	}
	return library{about: about, take: p.take, close: p.close}, nil
}

// take asks for a lock. Nothing can end the wait before its time: the program is not listening.
func (p *program) take(_ context.Context, name string) (*theirs, error) {
	wait := 2 * p.TTL
	if verb, text := p.ask(fmt.Sprintf("acquire %s %d", name, wait.Milliseconds()), wait); verb != "granted" {
		return nil, errors.Join(p.err, refusal(text))
	}
	return &theirs{
		left: func(context.Context) (time.Duration, error) {
			verb, text := p.ask("held", 0)
			if verb == "held" && text == "" {
				return thisMoment, nil
			}
			ms, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				err = refusal(text)
			}
			return time.Duration(ms) * time.Millisecond, err
		},
		release: func(context.Context) error {
			if verb, text := p.ask("release", 0); verb == "failed" {
				return refusal(text)
			}
			return p.err
		},
	}, nil
}

// ask makes a request and returns the answer, which may take for longer than others by extra. It
// returns nothing once anything went wrong.
func (p *program) ask(request string, extra time.Duration) (verb, text string) {
	if p.err != nil {
		return "", ""
	}
	asked, _, _ := strings.Cut(request, " ")
	limit := time.AfterFunc(p.Patience+extra, func() { p.cmd.Process.Kill() })
	io.WriteString(p.in, request+"\n") // an error means that there will be no answer
	answered := p.out.Scan()
	switch wanted := answers[asked]; {
	case !limit.Stop():
		p.broken("did not answer %q within %v", asked, p.Patience+extra)
	case !answered:
		p.broken("ended its output instead of answering %q, or had a line of more than %d bytes", asked, longestLine)
	case !wanted.form.MatchString(p.out.Text()):
		p.broken("answered %q by %q, where chaos/PROTOCOL.md has: %s", asked, p.out.Text(), wanted.text)
	default:
		verb, text, _ = strings.Cut(p.out.Text(), " ")
	}
	return verb, text
}

// broken keeps the first error, and ends the client.
func (p *program) broken(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("the program %q "+format, append([]any{p.Other}, args...)...)
		p.fail()
	}
}

// close ends the program's input and waits until it has ended. The program is killed if that takes
// too long. The error is the first that there was.
func (p *program) close() error {
	p.in.Close()
	wait := p.Patience
	if p.err != nil {
		wait = 0
	}
	limit := time.AfterFunc(wait, func() { p.cmd.Process.Kill() })
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
