package serve

import "time"

// A Config says how a Server serves.
type Config struct {
	TTL        time.Duration // of locks and sessions whose clients do not say
	Limits     Limits
	Tokens     func() []string // of which every request must bear one; nil for none
	IsLoopback bool            // it listens to this machine only, and refuses what web pages send to it
	Page       *Page           // at /ui, and what it shows at /v1/survey; nil for none

	Office    string      // for which the server campaigns; empty for none
	Candidate string      // who it is there, for people
	Warn      func(error) // told why the servers will not grant the office, once for a reason; nil for nobody
}
