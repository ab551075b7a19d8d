package inspect

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/record"
)

// A Command is one command for a server, with the answer: a Value, or the server's Err.
type Command struct {
	words []any
	Value any
	Err   redis.Error
}

// NewCommand returns a command that was not sent yet.
func NewCommand(words ...any) *Command { return &Command{words: words} }

// Send sends the commands in one packet, and returns when all are answered. Its error is the connection's.
func Send(c redis.Conn, commands ...*Command) error {
	for _, q := range commands {
		if err := c.Send(q.words[0].(string), q.words[1:]...); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for _, q := range commands {
		value, err := c.Receive()
		if !errors.As(err, &q.Err) && err != nil {
			return err
		}
		q.Value = value
	}
	return nil
}

// Answer returns the answer in the form that the helpers of redigo take.
func (q *Command) Answer() (any, error) {
	if q.Err != "" {
		return nil, q.Err
	}
	return q.Value, nil
}

// Text returns the answer as text.
func (q *Command) Text() string {
	text, _ := redis.String(q.Answer())
	return text
}

// List returns the answer as a list.
func (q *Command) List() []any {
	list, _ := redis.Values(q.Answer())
	return list
}

// Fields returns the fields of the answer to INFO, or the pairs of the answer to CONFIG GET.
func (q *Command) Fields() map[string]string {
	fields := map[string]string{}
	if list, err := redis.Strings(q.Answer()); err == nil {
		for i := 0; i+1 < len(list); i += 2 {
			fields[list[i]] = list[i+1]
		}
		return fields
	}
	for line := range strings.Lines(q.Text()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// Time returns the answer to TIME.
func (q *Command) Time() (at time.Time, ok bool) {
	list, err := redis.Int64s(q.Answer())
	if err != nil || len(list) != 2 {
		return time.Time{}, false
	}
	return time.Unix(list[0], list[1]*1000), true
}

// IsUnknown reports whether the server does not know the command.
func (q *Command) IsUnknown() bool {
	text := strings.ToLower(string(q.Err))
	return strings.Contains(text, "unknown") || strings.Contains(text, "not found") || strings.Contains(text, "unsupported command")
}

// An Interview has the questions to one server about itself, and the answers.
type Interview struct {
	Conn redis.Conn
	Who  record.Server // description of the server by its answers so far

	answers map[string]*Command
}

// Ask sends commands in one packet, and keeps their answers.
func (i *Interview) Ask(commands ...[]any) error {
	if i.answers == nil {
		i.answers = map[string]*Command{}
	}
	var all []*Command
	for _, words := range commands {
		q := NewCommand(words...)
		i.answers[strings.TrimSuffix(fmt.Sprintln(words...), "\n")] = q
		all = append(all, q)
	}
	return Send(i.Conn, all...)
}

// Answer returns the answer to a command that was asked, by its words.
func (i *Interview) Answer(command string) *Command { return i.answers[command] }

// Info returns the fields of a section of INFO.
func (i *Interview) Info(section string) map[string]string {
	return i.Answer("INFO " + section).Fields()
}

// Identify asks a server the questions that decide whether it can vote, as package pool does, and
// runs further commands.
func (i *Interview) Identify(more ...[]any) error {
	if err := i.Ask(append(more, []any{"ROLE"}, []any{"INFO", "replication"}, []any{"CLUSTER", "INFO"})...); err != nil {
		return err
	}
	for command, read := range map[string]func([]byte){
		"INFO server": i.Who.ReadServer, "INFO replication": i.Who.ReadReplication, "INFO stats": i.Who.ReadStats,
		"GET " + record.PrimaryKey: i.Who.ReadPrimary, "CLUSTER INFO": i.Who.ReadCluster,
	} {
		if q := i.Answer(command); q != nil {
			read([]byte(q.Text()))
		}
	}
	i.Who.ReadRole(i.Answer("ROLE").List())
	return nil
}
