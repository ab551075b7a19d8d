package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/internal/record"
)

// A Server is a server to examine.
type Server struct {
	Name string // holds no secret
	Dial func(context.Context) (redis.Conn, error)

	// Members are all servers of its node, with this server as the primary. Empty for a single
	// server.
	Members []Server

	Clear    bool // requests cross a network unencrypted
	Password bool // the connection sends a password
}

// Settings are the settings of the clients of the locks.
type Settings struct {
	Timeout     time.Duration // for the connection and all questions to one server
	NodeTimeout time.Duration // time limit for the vote of a server
	MaxTTL      time.Duration // the longest TTL of any lock, as the clients assume
	Prefix      string        // of all keys
	Guard       bool          // the memory guard is on
}

// A Timing is a measurement of a server, for display. The findings judge it.
type Timing struct {
	Trip, Longest time.Duration // round trips: the median, and the longest
	Offset        time.Duration // offset of the server's clock from ours; positive if it is ahead
	Uncertainty   time.Duration // maximum error of Offset
}

// A visit holds the conversation with one server, and its results for compare.
type visit struct {
	server   Server
	settings Settings
	nodes    int    // of the quorum
	groups   string // hash of all groups; empty without groups

	inspect.Interview
	answered bool // it answered at least the first questions
	unfit    bool // it is a Sentinel or in a cluster, so its answers to more questions mean nothing
	findings []Finding

	noChannels  bool // its ACL does not know channels: before Redis 6.2
	timing      *Timing
	clock       reading        // source of the offset in timing
	rate        rate           // gain of its clock on ours
	record      *record.Record // nil: missing, or unreadable
	recordRead  bool
	recordValid bool // it belongs to the current memory of the server
	quarantined bool // its votes do not count at the moment
}

func (v *visit) add(f Finding) { v.findings = append(v.findings, f) }

func (v *visit) fine(check, format string, args ...any) {
	v.add(Finding{OK, check, fmt.Sprintf(format, args...), "", ""})
}

// epochKey returns the key of the epoch record.
func (v *visit) epochKey() string { return v.settings.Prefix + record.Key }

// setting returns a value of CONFIG GET.
func (v *visit) setting(name string) string { return v.Answer("CONFIG GET " + name).Fields()[name] }
