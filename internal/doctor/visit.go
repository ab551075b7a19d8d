package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A visit is the conversation with one server.
type visit struct {
	server   Server
	settings Settings
	nodes    int // of the quorum

	conn     redis.Conn
	answered bool // the first questions, at least
	findings []Finding
	facts    facts
}

// facts are what compare needs of each server.
type facts struct {
	runID       string
	offset      time.Duration // the server's clock is ahead of ours by this,
	uncertainty time.Duration // give or take that
	timed       bool          // it is known
	record      *record       // nil: none, or it could not be read
	recordRead  bool
	quarantine  bool
}

func (v *visit) add(s Severity, check, found, means, do string) {
	v.findings = append(v.findings, Finding{s, check, found, means, do})
}

func (v *visit) fine(check, format string, args ...any) {
	v.add(OK, check, fmt.Sprintf(format, args...), "", "")
}

// run asks everything, and ends with the Settings' Timeout: the connection is
// closed then, and whatever waits for it fails.
func (v *visit) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, v.settings.Timeout)
	defer cancel()
	c, err := v.server.Dial(ctx)
	if err == nil {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		v.conn = c
		err = v.examine()
	}
	if err == nil {
		return
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("does not answer within %v", v.settings.Timeout)
	}
	// What it said before is of use, but a server that falls silent is none.
	v.answered = false
	v.add(Warning, checkReach, err.Error(), "it has no vote, and one more failure weighs more", "see that it runs, and that the URL and the network are right")
}

// examine asks everything. Its error is that of the connection.
func (v *visit) examine() error {
	for _, step := range []func() error{v.latency, v.identity, v.memory, v.guard, v.rights} {
		if err := step(); err != nil {
			return err
		}
	}
	v.transport()
	return nil
}

// A question is one command and what its answer is for. Exactly one of value and
// err is set.
type question struct {
	command []any // its words
	value   any
	err     redis.Error // what the server has against it
}

func newQuestion(words ...any) *question { return &question{command: words} }

// ask sends the questions in one packet, and returns when all are answered.
func (v *visit) ask(questions ...*question) error {
	for _, q := range questions {
		if err := v.conn.Send(q.command[0].(string), q.command[1:]...); err != nil {
			return err
		}
	}
	if err := v.conn.Flush(); err != nil {
		return err
	}
	for _, q := range questions {
		value, err := v.conn.Receive()
		if !errors.As(err, &q.err) && err != nil {
			return err
		}
		q.value = value
	}
	v.answered = true
	return nil
}

// text is the answer as one.
func (q *question) text() string {
	text, _ := redis.String(q.value, nil)
	return text
}

// fields are the answer's to INFO, or pairs as of CONFIG GET.
func (q *question) fields() map[string]string {
	fields := map[string]string{}
	if list, err := redis.Strings(q.value, nil); err == nil {
		for i := 0; i+1 < len(list); i += 2 {
			fields[list[i]] = list[i+1]
		}
		return fields
	}
	for line := range strings.Lines(q.text()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
