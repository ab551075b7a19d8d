package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/record"
)

// A visit is the conversation with one server.
type visit struct {
	server   Server
	settings Settings
	nodes    int // of the quorum

	conn     redis.Conn
	answered bool // the first questions, at least
	unfit    bool // it is a Sentinel or in a cluster, so its answers to more questions mean nothing
	findings []Finding
	facts    facts

	noChannels bool // its ACL knows none: before Redis 6.2
}

// facts has what compare needs of each server.
type facts struct {
	runID       string
	offset      time.Duration  // the server's clock is ahead of ours by this,
	uncertainty time.Duration  // give or take that
	timed       bool           // it is known
	trip        time.Duration  // the median of some round trips,
	longest     time.Duration  // and the longest
	clock       reading        // from which it is
	rate        rate           // at which it gains on ours
	dataSet     string         // as in the record
	record      *record.Record // nil: none, or it could not be read
	recordRead  bool
	quarantine  bool // its votes do not count for now
}

func (v *visit) add(f Finding) { v.findings = append(v.findings, f) }

func (v *visit) fine(check, format string, args ...any) {
	v.add(Finding{OK, check, fmt.Sprintf(format, args...), "", ""})
}

// run asks everything, within the Settings' Timeout. The connection is closed then, so that what
// waits for it fails.
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
		v.members(ctx)
		err = v.watch(ctx)
	}
	if err == nil {
		return
	}
	if v.conn != nil && ctx.Err() != nil {
		err = fmt.Errorf("does not answer within %v", v.settings.Timeout)
	}
	// Its findings until then stay, but a server that stops answering has no vote.
	v.answered = false
	v.add(Finding{Warning, checkReach, err.Error(), "it has no vote, and one more failure weighs more", "mend what it says; else see that it runs, and that the URL and the network are right"})
}

// examine asks everything. Its error is the connection's.
func (v *visit) examine() error {
	for _, step := range []func() error{v.latency, v.identity, v.standby, v.memory, v.guard, v.rights} {
		if err := step(); err != nil {
			return err
		}
		if v.unfit {
			break
		}
	}
	v.transport()
	return nil
}

// A question is one command and its answer. Exactly one of value and
// err is set.
type question struct {
	command []any // its words
	value   any
	err     redis.Error // the server's
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

// text returns the answer as text.
func (q *question) text() string {
	text, _ := redis.String(q.value, nil)
	return text
}

// fields returns the fields of the answer to INFO, or the pairs of that to CONFIG GET.
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
