// Package record is the result of a run: the figures of each trial as they were measured, and all
// that follows from them by arithmetic.
//
// It is the meeting point of the other packages: load, servers and fault fill a Run, report shows
// it, and its JSON form is the benchmark's output for machines (--json). Times within a trial are durations
// since the trial's start. All fields with a unit say it in their JSON name.
package record

import "time"

// A Run is one invocation of the benchmark.
type Run struct {
	Scenario string    `json:"scenario"`
	About    string    `json:"about"` // the scenario in a sentence
	Date     time.Time `json:"date"`
	Machine  Machine   `json:"machine"`
	Subjects []Subject `json:"subjects"` // in the order in which reports list them; the first is compared with the others
	Trials   []Trial   `json:"trials"`   // in the order in which they ran
}

// A Machine is where the figures were measured.
type Machine struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	CPUs       int    `json:"cpus"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Go         string `json:"go"`
	Nodes      string `json:"nodes"`   // embedded, process, docker, addrs
	Servers    string `json:"servers"` // "redis 7.0.15"; "" if they do not say
	Durable    bool   `json:"durable"` // appendfsync always
}

// A Subject is a library in one configuration.
type Subject struct {
	Name  string `json:"name"`  // as in flags: "redsync"
	Title string `json:"title"` // for people: "redsync 4.18 (redigo)"
	Note  string `json:"note"`  // how it is configured, and in what it differs from the others
}

// A Load is the work of the callers.
type Load struct {
	Nodes     int           `json:"nodes"`
	Processes int           `json:"processes"`
	Callers   int           `json:"callers"`           // in all processes together; in an open loop the most that may be under way
	Rate      float64       `json:"rate,omitempty"`    // cycles a second that are begun, in all processes together; 0: closed loop
	Names     string        `json:"names"`             // own, single
	Length    int           `json:"length,omitempty"`  // bytes of each name; 0: as short as they are
	Hold      time.Duration `json:"hold_ns"`           // between acquire and release
	TTL       time.Duration `json:"ttl_ns"`            // of each lock
	Held      int           `json:"held,omitempty"`    // locks that are held under renewal during the whole trial, instead of cycles
	Duration  time.Duration `json:"duration_ns"`       // planned
	Warmup    time.Duration `json:"warmup_ns"`         // before the trial, not measured
	Patience  time.Duration `json:"patience_ns"`       // after which a caller's context ends its waiting
	Point     string        `json:"point,omitempty"`   // of a sweep, as reports name it: "callers=64"
	Profile   string        `json:"profile,omitempty"` // file for the CPU profile of the first process; "" for none
}

// Outcomes of a cycle, or of a lock that is held.
const (
	OK       = "ok"
	Failed   = "failed"    // with an error of Trial.Errors, or lost
	NotBegun = "not begun" // due in an open loop, but no caller was free until the end
	UnderWay = "under way" // cut off by the trial's end
)

// A Trial is one subject under one load, once.
type Trial struct {
	Subject string `json:"subject"`
	Round   int    `json:"round"` // from zero
	Load    Load   `json:"load"`

	Cycles   int64            `json:"cycles"`  // acquired and released without an error
	Acquire  Histogram        `json:"acquire"` // in an open loop from when the cycle should have begun
	Outcomes map[string]int64 `json:"outcomes"`
	Errors   map[string]int64 `json:"errors,omitempty"`  // by message; numbers in messages replaced by #
	CPU      time.Duration    `json:"cpu_ns"`            // of the client processes
	Allocs   int64            `json:"allocs"`            // heap objects of the client processes
	Slices   []Histogram      `json:"slices,omitempty"`  // acquisitions that ended in each SliceLength
	Millis   []uint16         `json:"millis,omitempty"`  // cycles acquired in each millisecond, until Feel
	Callers  []int64          `json:"callers,omitempty"` // cycles of each caller, of contention only
	Held     *HeldLocks       `json:"held,omitempty"`    // of Load.Held only
	Fault    *Fault           `json:"fault,omitempty"`

	Nodes      []NodeCosts `json:"nodes,omitempty"`
	Checked    int64       `json:"checked"`    // lock holdings that were checked for overlap
	Violations int64       `json:"violations"` // pairs of them that overlapped
	Violation  string      `json:"violation,omitempty"`
}

// SliceLength is the resolution of figures over time.
const SliceLength = 100 * time.Millisecond

// HeldLocks is the cost of holding many locks for the length of the trial.
type HeldLocks struct {
	Wanted   int           `json:"wanted"`
	Acquired int           `json:"acquired"`
	Lost     int           `json:"lost"`       // while they should have been held
	Bytes    int64         `json:"heap_bytes"` // that the heap of the clients grew by
	OnNode   int64         `json:"node_bytes"` // that the memory of a node grew by, on average; zero: not known
	CPU      time.Duration `json:"cpu_ns"`     // of the client processes, while they were only held
	For      time.Duration `json:"for_ns"`     // how long that was
}

// A Fault is an intervention on nodes, and its effect on the service.
type Fault struct {
	What string        `json:"what"` // "kill 2 of 5"
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"` // when the nodes were as before again

	Without  time.Duration `json:"without_ns"`  // the longest time in which no lock was acquired, of those that touch the fault
	Recovery time.Duration `json:"recovery_ns"` // from the fault's end until the rate was at 90 % of what it was before; -1: it was not by the end of the trial
	Before   Histogram     `json:"before"`      // acquisitions until the fault
	During   Histogram     `json:"during"`      // those of the slices within it
}

// NodeCosts is the cost of a trial for one node. A node that does not count, or that was restarted
// meanwhile, has zeros.
type NodeCosts struct {
	Commands map[string]int64 `json:"commands"` // by name; Lua scripts count what they call as well
	BytesIn  int64            `json:"bytes_in"`
	BytesOut int64            `json:"bytes_out"`
	CPU      time.Duration    `json:"cpu_ns"`
}
