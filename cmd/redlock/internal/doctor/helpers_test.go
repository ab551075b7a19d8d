package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a server whose answers the test chooses. The answer to a command is the one with the
// longest key that the command begins with. An error is the server's own if it is a redis.Error,
// and otherwise the connection's.
type fake struct {
	answers map[string]any
	clock   time.Duration // initial lead over our clock
	rate    float64       // rate at which its clock gains on ours
	began   time.Time
	step    time.Duration // step size of its clock; zero for a continuous clock

	mu      sync.Mutex
	sent    []string // all commands
	pending []string
	closed  chan struct{}
	once    sync.Once
}

// healthy returns a healthy Redis 7 server that has been running for a while.
func healthy() *fake {
	return &fake{closed: make(chan struct{}), began: time.Now(), answers: map[string]any{
		"INFO server":                 "# Server\r\nredis_version:7.2.4\r\nredis_mode:standalone\r\nrun_id:aaaa\r\n",
		"INFO persistence":            "loading:0\r\naof_enabled:1\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:ok\r\n",
		"INFO memory":                 "used_memory:1000000\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
		"CONFIG GET appendonly":       pair("appendonly", "yes"),
		"CONFIG GET appendfsync":      pair("appendfsync", "always"),
		"CONFIG GET save":             pair("save", ""),
		"CONFIG GET maxmemory-policy": pair("maxmemory-policy", "noeviction"),
		"CONFIG GET maxmemory":        pair("maxmemory", "0"),
		"ROLE":                        []any{[]byte("master"), int64(0), []any{}},
		"INFO replication":            "role:master\r\nmaster_replid:dddd\r\n",
		"GET redlock:epoch":           []byte(recordOf("aaaa/dddd", nil)),
		"PTTL redlock:epoch":          int64(4398046511104),
		"ACL WHOAMI":                  []byte("locks"),
		"ACL DRYRUN":                  "OK",
	}}
}

// recordOf returns the record of one of three servers, an hour old, after change.
func recordOf(run string, change func(*record.Record)) string {
	now := time.Duration(time.Now().UnixMilli()) * time.Millisecond
	born := now - time.Hour
	r := record.Record{
		Run: run, Generation: "g", Nodes: 3, Born: born, Basis: record.Proof,
		Steps: []record.Step{{TTL: 10 * time.Second, Entered: born, Used: now}},
	}
	if change != nil {
		change(&r)
	}
	return r.String()
}

func pair(name, value string) []any { return []any{[]byte(name), []byte(value)} }

// but changes one answer. A nil answer never arrives.
func (f *fake) but(command string, answer any) *fake {
	f.answers[command] = answer
	return f
}

func (f *fake) server(name string) Server {
	return Server{Name: name, Dial: func(context.Context) (redis.Conn, error) { return f, nil }}
}

func (f *fake) Send(command string, args ...any) error {
	words := command
	for _, a := range args {
		words += " " + fmt.Sprint(a)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent, f.pending = append(f.sent, words), append(f.pending, words)
	return nil
}

func (f *fake) Receive() (any, error) {
	f.mu.Lock()
	command := f.pending[0]
	f.pending = f.pending[1:]
	f.mu.Unlock()
	best, answer := "", any(redis.Error("ERR unknown command"))
	for start, a := range f.answers {
		if strings.HasPrefix(command, start) && len(start) > len(best) {
			best, answer = start, a
		}
	}
	if command == "TIME" && best == "" {
		now := time.Now()
		now = now.Add(f.clock + time.Duration(f.rate*float64(now.Sub(f.began)))).Truncate(f.step)
		return []any{[]byte(fmt.Sprint(now.Unix())), []byte(fmt.Sprint(now.Nanosecond() / 1000))}, nil
	}
	if best != "" && answer == nil {
		<-f.closed
		return nil, errors.New("use of closed connection")
	}
	if err, ok := answer.(error); ok {
		return nil, err
	}
	if answer == absent {
		return nil, nil
	}
	return answer, nil
}

// absent is the answer about a missing key.
var absent = new(int)

func (f *fake) Flush() error                   { return nil }
func (f *fake) Err() error                     { return nil }
func (f *fake) Do(string, ...any) (any, error) { panic("not used") }
func (f *fake) Close() error                   { f.once.Do(func() { close(f.closed) }); return nil }

var usual = Settings{Timeout: 10 * time.Second, NodeTimeout: 10 * time.Second, MaxTTL: 10 * time.Second, Guard: true}

// examine examines the servers of one set.
func examine(ctx context.Context, servers []Server, s Settings) *Report {
	return Examine(ctx, []Set{{Servers: servers}}, s)[0]
}

// three examines the fake together with two healthy servers.
func three(t *testing.T, f *fake, s Settings) *Report {
	t.Helper()
	return with(t, f, healthy(), healthy(), s)
}

// with is like three, with the given servers instead of healthy ones.
func with(t *testing.T, f, second, third *fake, s Settings) *Report {
	t.Helper()
	for i, other := range []*fake{second, third} {
		run := []string{"bbbb", "cccc"}[i]
		other.but("INFO server", strings.Replace(other.answers["INFO server"].(string), "aaaa", run, 1))
		other.but("GET redlock:epoch", []byte(recordOf(run+"/dddd", nil)))
	}
	r := examine(t.Context(), []Server{f.server("first"), second.server("second"), third.server("third")}, s)
	explained(t, r.Together)
	for _, n := range r.Nodes {
		explained(t, n.Findings)
	}
	return r
}

// find returns the worst finding of a check.
func find(findings []Finding, check string) (worst Finding) {
	for _, f := range findings {
		if f.Check == check && (worst.Check == "" || f.Severity > worst.Severity) {
			worst = f
		}
	}
	return worst
}
