package history

// A Kind says what an Event tells.
type Kind string

// What a client tells. Each acquisition is Asked once, and then Granted or
// Failed; if it has neither, the client was killed, and nobody knows.
const (
	Asked    Kind = "asked"    // Acquire is about to be called
	Granted  Kind = "granted"  // it has returned a lock: Token, Until, Votes
	Failed   Kind = "failed"   // it has returned an error: Text
	Extended Kind = "extended" // the lock was seen to last longer: Until
	Lost     Kind = "lost"     // the lock's context has ended: Text
	Leaving  Kind = "leaving"  // Release is about to be called
	Released Kind = "released" // it has returned: Text, if that was an error
)

// What the others tell.
const (
	Accepted Kind = "accepted" // the register took a write: Token
	Refused  Kind = "refused"  // it did not
	Fault    Kind = "fault"    // the nemesis did what Text says: Name is the fault's kind
	Healed   Kind = "healed"   // and undid it
	Calm     Kind = "calm"     // all is healed, and the clients go on for a while
	Left     Kind = "left"     // a server (Who) still has the key of Name, when nobody should hold it
)

// An Event is one line of a history. Fields that its kind does not mention are
// empty, but for At and, where it is about a lock, Who, Op and Name.
type Event struct {
	At    int64  `json:"at"` // nanoseconds, by Now
	Kind  Kind   `json:"kind"`
	Who   int    `json:"who"`          // the client, each process another one
	Op    int64  `json:"op,omitempty"` // the acquisition, of the client's
	Name  string `json:"name,omitempty"`
	Token int64  `json:"token,omitempty"`
	Until int64  `json:"until,omitempty"` // the lock's deadline, by Now; never later than the library's own
	Votes int    `json:"votes,omitempty"`
	Text  string `json:"text,omitempty"`
}
