package doctor

import "fmt"

// Severity is the severity of a Finding.
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

// MarshalText returns the word of the severity, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the word of a severity.
func (s *Severity) UnmarshalText(text []byte) error {
	for i, name := range severities {
		if name == string(text) {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("doctor: unknown severity %q", text)
}

// A Finding is the result of one check.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`           // stable word for scripts
	Found    string   `json:"found"`           // the fact
	Means    string   `json:"means,omitempty"` // consequence for the safety or use of locks; empty for OK
	Do       string   `json:"do,omitempty"`    // advice
}

// The checks, which are the values of Finding.Check.
const (
	CheckReachable   = "reachable"
	CheckLatency     = "latency"
	checkVersion     = "version"
	checkMode        = "mode"
	checkRole        = "role"
	checkRunID       = "run_id"
	checkStandby     = "standby"
	checkPersistence = "persistence"
	checkEviction    = "eviction"
	checkMemory      = "memory"
	checkClock       = "clock"
	CheckQuarantine  = "quarantine"
	checkEpoch       = "epoch"
	checkRights      = "rights"
	checkHints       = "hints"
	checkTransport   = "transport"
	checkNodes       = "nodes"
	checkSame        = "same_server"
)

func worst(findings []Finding) (w Severity) {
	for _, f := range findings {
		w = max(w, f.Severity)
	}
	return w
}

func has(findings []Finding, check string) bool {
	for _, f := range findings {
		if f.Check == check {
			return true
		}
	}
	return false
}
