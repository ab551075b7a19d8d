package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/record"
)

// A visit is the conversation with one server, and what compare needs of it.
type visit struct {
	server   Server
	settings Settings
	nodes    int    // of the quorum
	groups   string // hash of all groups; empty: there are none

	conn     redis.Conn
	answers  map[string]*question // to inquire, by their words
	answered bool                 // the first questions, at least
	unfit    bool                 // it is a Sentinel or in a cluster, so its answers to more questions mean nothing
	findings []Finding

	noChannels  bool // its ACL knows none: before Redis 6.2
	runID       string
	timing      *Timing
	clock       reading        // from which timing has the offset
	rate        rate           // at which its clock gains on ours
	record      *record.Record // nil: none, or it could not be read
	recordRead  bool
	recordValid bool // it is of what the server remembers now
	quarantined bool // its votes do not count for now
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
	v.add(Finding{Warning, checkReach, err.Error(), "it has no vote, so fewer other servers may fail", "correct the cause that is named, or check the server, the URL and the network"})
}

// examine asks everything. Its error is the connection's, and what was found until then stays.
func (v *visit) examine() error {
	if err := v.latency(); err != nil {
		return err
	}
	if err := v.introduce(); err != nil {
		return err
	}
	if v.identity(); v.unfit {
		v.transport()
		return nil
	}
	questions := [][]any{{"ACL", "WHOAMI"}, {"GET", v.epochKey()}, {"PTTL", v.epochKey()}, {"GET", record.PrimaryKey}}
	for _, section := range []string{"persistence", "memory", "stats"} {
		questions = append(questions, []any{"INFO", section})
	}
	for _, name := range []string{"appendonly", "appendfsync", "save", "maxmemory-policy", "maxmemory", "min-replicas-to-write", "repl-backlog-ttl"} {
		questions = append(questions, []any{"CONFIG", "GET", name})
	}
	if err := v.inquire(questions...); err != nil {
		return err
	}
	v.standby()
	v.memory()
	v.guard()
	err := v.rights()
	v.transport()
	return err
}

// introduce asks which server it is, of which kind.
func (v *visit) introduce() error {
	v.answers = map[string]*question{}
	err := v.inquire([]any{"ROLE"}, []any{"CLUSTER", "INFO"}, []any{"CLIENT", "ID"}, []any{"SCRIPT", "EXISTS", "0"},
		[]any{"INFO", "server"}, []any{"INFO", "replication"})
	v.runID = v.info("server")["run_id"]
	if err != nil || v.runID != "" || v.answers["INFO server"].err != "" {
		return err
	}
	// As package pool: in scripts it may have one.
	script := newQuestion("EVAL", "return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''", 0)
	err = v.ask(script)
	v.runID = script.text()
	return err
}

// inquire asks the questions in one packet, and keeps the answers.
func (v *visit) inquire(questions ...[]any) error {
	var all []*question
	for _, words := range questions {
		q := newQuestion(words...)
		v.answers[strings.TrimSuffix(fmt.Sprintln(words...), "\n")] = q
		all = append(all, q)
	}
	return v.ask(all...)
}

// epochKey returns the key of the epoch record.
func (v *visit) epochKey() string { return v.settings.Prefix + record.Key }

// info returns what a section of INFO tells, and setting what CONFIG GET does.
func (v *visit) info(section string) map[string]string { return v.answers["INFO "+section].fields() }
func (v *visit) setting(name string) string            { return v.answers["CONFIG GET "+name].fields()[name] }

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
