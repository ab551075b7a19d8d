package doctor

import "fmt"

// Severity says how bad a Finding is.
type Severity int

// The severities.
const (
	OK      Severity = iota // in order
	Note                    // worth knowing
	Warning                 // locks can fail, or stop excluding each other, when something else goes wrong
	Fatal                   // as things are now, this server has no vote, or locks do not exclude each other
)

var severities = [...]string{OK: "ok", Note: "note", Warning: "warning", Fatal: "fatal"}

func (s Severity) String() string { return severities[s] }

// MarshalText makes it a word in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads that word.
func (s *Severity) UnmarshalText(text []byte) error {
	for i, name := range severities {
		if name == string(text) {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("doctor: unknown severity %q", text)
}

// A Finding is one thing that was looked at.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`           // stable: a word for scripts
	Found    string   `json:"found"`           // what is so
	Means    string   `json:"means,omitempty"` // for the safety or use of locks; empty if all is well
	Do       string   `json:"do,omitempty"`    // what to do about it
}

// The checks, as Finding.Check has them.
const (
	checkReach       = "reachable"
	checkLatency     = "latency"
	checkVersion     = "version"
	checkMode        = "mode"
	checkRole        = "role"
	checkRunID       = "run_id"
	checkStandby     = "standby"
	checkPersistence = "persistence"
	checkEviction    = "eviction"
	checkMemory      = "memory"
	checkClock       = "clock"
	checkQuarantine  = "quarantine"
	checkEpoch       = "epoch"
	checkRights      = "rights"
	checkHints       = "hints"
	checkTransport   = "transport"
	checkNodes       = "nodes"
	checkSame        = "same_server"
)
