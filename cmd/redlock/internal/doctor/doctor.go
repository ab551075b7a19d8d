// Package doctor examines the Redis servers of a quorum lock: whether each of
// them can vote, what could make it forget or misjudge a lock, and whether all
// of them together make a quorum. It changes nothing on the servers.
//
// Examine visits all servers at once, asks each the same questions (package inspect), and judges its
// answers: latency.go, identity.go, standby.go, persistence.go, record.go and rights.go, in that order.
// They share a visit (visit.go). Then compare.go compares the servers. Each result is a Finding. A new one is
// added in the file of its check.
//
// Package pool also detects most of these problems, and refuses or logs them while clients take
// locks. The doctor reports them in advance, all at once, in words for operators.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool"
)

// Open returns the Server at a URL, with the options of package pool. Its errors
// do not repeat passwords.
func Open(raw string, opts ...pool.Option) (Server, error) {
	name, dial, err := pool.Dialer(raw, opts...)
	if err != nil {
		return Server{}, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		panic(err) // Dialer has already parsed it
	}
	members, err := openMembers(u, opts)
	if err != nil {
		return Server{}, err
	}
	return Server{Name: name, Dial: dial, Members: members, Clear: u.Scheme == "redis" && !loopback(u.Hostname()), Password: u.User != nil}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// A Report has the findings of Examine.
type Report struct {
	Verdict  Severity     `json:"verdict"`  // the worst of all findings
	Answered int          `json:"answered"` // servers
	Quorum   int          `json:"quorum"`   // number of servers that must answer
	Nodes    []NodeReport `json:"nodes"`    // in the order of the servers
	Together []Finding    `json:"together"` // about the servers as a set
}

// Locks reports whether locks can be taken now: a quorum of the servers has a vote.
func (r *Report) Locks() bool { return worst(r.Together) < Fatal }

// A NodeReport has the findings about one server.
type NodeReport struct {
	Node     string    `json:"node"`
	Answered bool      `json:"answered"`
	Findings []Finding `json:"findings"`

	Timing *Timing `json:"-"` // nil if it did not answer, or not to TIME
}

// Worst returns the severity of the worst finding.
func (n NodeReport) Worst() Severity { return worst(n.Findings) }

// A Set is a group of servers that vote together.
type Set struct {
	Servers []Server
	Groups  string // hash of all groups in the servers' records, see package keys; empty: without groups
}

// Examine asks all servers of the sets at once, for at most the Settings' Timeout. Each set is judged by
// itself. It returns no error, because the reports have all failures.
func Examine(ctx context.Context, sets []Set, s Settings) []*Report {
	visits := make([][]*visit, len(sets))
	var wg sync.WaitGroup
	for i, set := range sets {
		for _, server := range set.Servers {
			v := &visit{server: server, settings: s, nodes: len(set.Servers), groups: set.Groups, rate: unknown}
			visits[i] = append(visits[i], v)
			wg.Go(func() { v.run(ctx) })
		}
	}
	wg.Wait()
	sameServers(visits)
	reports := make([]*Report, len(sets))
	for i := range sets {
		reports[i] = reportOf(visits[i])
	}
	return reports
}

// reportOf compares the servers of a set, and returns their report.
func reportOf(visits []*visit) *Report {
	r := &Report{Quorum: len(visits)/2 + 1, Answered: answered(visits), Together: compare(visits)}
	for _, v := range visits {
		r.Nodes = append(r.Nodes, NodeReport{v.server.Name, v.answered, v.findings, v.timing})
	}
	r.judge()
	return r
}

// judge sets the verdict.
func (r *Report) judge() {
	r.Verdict = worst(r.Together)
	for _, n := range r.Nodes {
		r.Verdict = max(r.Verdict, n.Worst())
	}
}

// Acceptable lists the checks with warnings that an operator can accept, because they concern
// permanent decisions. Other warnings are temporary, or endanger locks.
var Acceptable = []string{checkTransport, checkNodes, checkVersion, checkMode, checkRunID}

// Accept turns the warnings of the given checks, which must be Acceptable, into notes.
func (r *Report) Accept(checks []string) {
	accept := func(findings []Finding) {
		for i, f := range findings {
			if f.Severity == Warning && slices.Contains(checks, f.Check) {
				findings[i].Severity = Note
			}
		}
	}
	accept(r.Together)
	for _, n := range r.Nodes {
		accept(n.Findings)
	}
	r.judge()
}

// run asks all questions, within the Timeout of the Settings. At the timeout it closes the
// connection, which ends all waits.
func (v *visit) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, v.settings.Timeout)
	defer cancel()
	c, err := v.server.Dial(ctx)
	if err == nil {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		v.Conn = c
		err = v.examine()
	}
	if err == nil {
		v.members(ctx)
		err = v.watch(ctx)
	}
	if err == nil {
		return
	}
	if v.Conn != nil && ctx.Err() != nil {
		err = fmt.Errorf("does not answer within %v", v.settings.Timeout)
	}
	// Its earlier findings stay, but a server that stops answering has no vote.
	v.answered = false
	v.add(Finding{Warning, CheckReachable, err.Error(), "it has no vote, so fewer other servers may fail", "fix the reported cause, or check the server, the URL and the network"})
}

// examine asks all questions. It returns an error of the connection, and keeps earlier findings.
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
	questions := [][]any{{"ACL", "WHOAMI"}, {"GET", v.epochKey()}, {"PTTL", v.epochKey()}}
	for _, section := range []string{"persistence", "memory"} {
		questions = append(questions, []any{"INFO", section})
	}
	for _, name := range []string{"appendonly", "appendfsync", "save", "maxmemory-policy", "maxmemory", "min-replicas-to-write", "repl-backlog-ttl"} {
		questions = append(questions, []any{"CONFIG", "GET", name})
	}
	if err := v.Ask(questions...); err != nil {
		return err
	}
	v.standby()
	v.memory()
	v.guard()
	err := v.rights()
	v.transport()
	return err
}

// introduce asks for the identity and the kind of the server.
func (v *visit) introduce() error {
	err := v.Identify([]any{"CLIENT", "ID"}, []any{"SCRIPT", "EXISTS", "0"}, []any{"INFO", "server"}, []any{"INFO", "stats"}, []any{"GET", record.PrimaryKey})
	if err != nil || v.Answer("INFO server").Err != "" || v.Who.RunID != "" || v.Who.Replication.ID == "" {
		return err
	}
	// As in package pool: scripts may see a run_id that a proxy hides.
	script := inspect.NewCommand("EVAL", "return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''", 0)
	err = inspect.Send(v.Conn, script)
	v.Who.RunID = cmp.Or(script.Text(), v.Who.Replication.ID)
	return err
}
