package serve

import "time"

// An Audit records grants, refusals and ends of locks. It must not block, because the Server calls
// it while it holds its mutex. It is safe for concurrent use.
type Audit interface {
	Record(AuditEntry)
	Failed() int64 // number of entries that could not be written
}

// The events of an AuditEntry.
const (
	AuditGranted  = "granted"
	AuditRefused  = "refused"
	AuditReleased = "released" // released by the client, or because its session has ended
	AuditLost     = "lost"     // ended before its release, or at the end of max_hold_ms
	AuditLeft     = "left"     // still held when the server ended; expires
)

// An AuditEntry is an event of a lock. It has no value of a lock, and no id that a client uses.
type AuditEntry struct {
	Time    time.Time        `json:"time"`
	Event   string           `json:"event"`
	Client  string           `json:"client,omitempty"` // label
	Names   []string         `json:"names,omitempty"`
	Kind    string           `json:"kind,omitempty"`
	Owner   string           `json:"owner,omitempty"`
	Session string           `json:"session,omitempty"` // public ID, as in GET /v1/sessions
	Lease   string           `json:"lease,omitempty"`   // public ID
	Fence   int64            `json:"fence,omitempty"`
	Fences  map[string]int64 `json:"fences,omitempty"`
	Reason  string           `json:"reason,omitempty"` // for a refusal, the kind of the problem
}
