// Package doctor examines the Redis servers of a quorum lock: whether each of
// them can vote, what could make it forget or misjudge a lock, and whether all
// of them together make a quorum. It changes nothing on the servers.
//
// Examine visits all servers at once (visit.go), asks each the same questions, and judges its answers:
// latency.go, identity.go, standby.go, persistence.go, record.go and rights.go, in that order. Then
// compare.go judges what shows only when the servers are compared. Each result is a Finding.
//
// Package pool knows most of it, too, and refuses or logs it while locks are taken. The doctor
// reports it before, all at once, and in words for operators.
package doctor

import (
	"context"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool"
)

// A Server is one to be examined.
type Server struct {
	Name string // holds no secret
	Dial func(context.Context) (redis.Conn, error)

	// Members are the servers of its node, of which it is the primary. None: it is the only one.
	Members []Server

	Clear    bool // what is sent to it crosses a network unencrypted
	Password bool // and a password is sent
}

// Open returns the Server at a URL, with the options of package pool. Its errors
// do not repeat passwords.
func Open(raw string, opts ...pool.Option) (Server, error) {
	name, dial, err := pool.Dialer(raw, opts...)
	if err != nil {
		return Server{}, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		panic(err) // or Dialer had refused it
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

// Settings are those of the clients of the locks.
type Settings struct {
	Timeout     time.Duration // for all that one server is asked, connecting included
	NodeTimeout time.Duration // how long a vote waits for a server
	MaxTTL      time.Duration // the longest of any lock, as far as the clients know
	Prefix      string        // of all keys
	Guard       bool          // the memory guard is on
}

// A Report is all that Examine found.
type Report struct {
	Verdict  Severity     `json:"verdict"`  // the worst of all findings
	Answered int          `json:"answered"` // servers
	Quorum   int          `json:"quorum"`   // how many have to
	Nodes    []NodeReport `json:"nodes"`    // in the order of the servers
	Together []Finding    `json:"together"` // about all of them
}

// Locks reports whether locks can be taken now: a quorum of the servers has a vote.
func (r *Report) Locks() bool { return worst(r.Together) < Fatal }

// A NodeReport is what was found of one server.
type NodeReport struct {
	Node     string    `json:"node"`
	Answered bool      `json:"answered"`
	Findings []Finding `json:"findings"`

	Timing *Timing `json:"-"` // nil: it did not answer, or does not tell the time
}

// A Timing is what was measured of a server, for those who show it in their own words. The findings judge
// it.
type Timing struct {
	Trip, Longest time.Duration // round trips: the median, and the longest
	Offset        time.Duration // the server's clock is ahead of ours by this,
	Uncertainty   time.Duration // give or take that
}

// Worst returns the severity of the worst finding.
func (n NodeReport) Worst() Severity { return worst(n.Findings) }

func worst(findings []Finding) (w Severity) {
	for _, f := range findings {
		w = max(w, f.Severity)
	}
	return w
}

// Examine asks all servers at once, for at most the Settings' Timeout. It has no error, because
// what went wrong is in the report.
func Examine(ctx context.Context, servers []Server, s Settings) *Report {
	return ExamineSets(ctx, []Set{{Servers: servers}}, s)[0]
}

// A Set is servers that vote together.
type Set struct {
	Servers []Server
	Groups  string // hash of all groups in the servers' records, see package groups; empty: it is no group
}

// ExamineSets is Examine for several sets of servers, which are groups. All are asked at once, and
// each set is judged by itself.
func ExamineSets(ctx context.Context, sets []Set, s Settings) []*Report {
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

// reportOf compares the servers of a set, and reports what was found of them.
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

// Acceptable are the checks whose warnings an operator can accept, because they are about what was decided and stays.
// Others pass, or endanger locks.
var Acceptable = []string{checkTransport, checkNodes, checkVersion, checkMode, checkRunID}

// Accept makes notes of the warnings of some checks, which are Acceptable.
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
