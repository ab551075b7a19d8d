// Package record has the result of a run: the measured figures of each trial, and the summaries
// computed from them.
//
// It connects the other packages: package load fills a Trial, the program adds the costs of the
// servers and the effect of a fault, and package report shows the Run. The JSON form of a Run is
// the program's output for machines (--json). Times within a trial count from its start.
package record

import "time"

// A Run is one invocation of the benchmark.
type Run struct {
	Scenario string    `json:"scenario"`
	About    string    `json:"about"` // the scenario in a sentence
	Date     time.Time `json:"date"`
	Machine  Machine   `json:"machine"`
	Subjects []Subject `json:"subjects"` // in the order of reports; the others are compared with the first
	Trials   []Trial   `json:"trials"`   // in the order of measurement
}

// A Machine describes the machine of the measurement.
type Machine struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	CPUs       int    `json:"cpus"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Go         string `json:"go"`
	Nodes      string `json:"nodes"`   // embedded, process
	Servers    string `json:"servers"` // "redis 7.0.15"; "" if unknown
	Durable    bool   `json:"durable"` // appendfsync always
}

// A Subject is a library in one configuration.
type Subject struct {
	Name  string `json:"name"`  // as in flags: "redsync"
	Title string `json:"title"` // for people: "redsync 4.18 (redigo)"
	Note  string `json:"note"`  // its configuration, and its differences from the others
}

// A Load is the work of the callers.
type Load struct {
	Nodes     int           `json:"nodes"`
	Processes int           `json:"processes"`
	Callers   int           `json:"callers"`        // number in all processes; in an open loop, the maximum number of concurrent cycles
	Rate      float64       `json:"rate,omitempty"` // cycles a second to begin, in all processes; 0: closed loop
	Names     string        `json:"names"`          // own, single
	Hold      time.Duration `json:"hold_ns"`        // time between acquire and release
	TTL       time.Duration `json:"ttl_ns"`
	Held      int           `json:"held,omitempty"` // number of locks that are held and renewed for the whole trial, instead of cycles
	Duration  time.Duration `json:"duration_ns"`    // planned
	Warmup    time.Duration `json:"warmup_ns"`      // time before the trial that is not measured
	Patience  time.Duration `json:"patience_ns"`    // limit of a caller's context; 0: none
}

// A Trial is one subject, measured once.
type Trial struct {
	Subject string `json:"subject"`
	Round   int    `json:"round"` // from zero
	Load    Load   `json:"load"`

	Cycles  int64            `json:"cycles"`            // acquired and released without an error
	Acquire Histogram        `json:"acquire"`           // in an open loop from the time at which the cycle was due
	Errors  map[string]int64 `json:"errors,omitempty"`  // number of failed cycles by message; # in place of numbers
	CPU     time.Duration    `json:"cpu_ns"`            // of the client processes
	Allocs  int64            `json:"allocs"`            // heap objects of the client processes
	Callers []int64          `json:"callers,omitempty"` // cycles of each caller, if all want one name
	Held    *HeldLocks       `json:"held,omitempty"`    // of Load.Held only
	Fault   *Fault           `json:"fault,omitempty"`

	Commands   []int64 `json:"commands,omitempty"` // number of commands on each node, including the calls of scripts; 0: unknown
	Checked    int64   `json:"checked"`            // holds that were checked for overlap
	Violations int64   `json:"violations"`         // pairs of holds that overlapped
	Violation  string  `json:"violation,omitempty"`
}

// HeldLocks is the cost of many locks that are held for the length of the trial.
type HeldLocks struct {
	Wanted   int           `json:"wanted"`
	Acquired int           `json:"acquired"`
	Lost     int           `json:"lost"`       // during the trial
	Bytes    int64         `json:"heap_bytes"` // growth of the clients' heap
	OnNode   int64         `json:"node_bytes"` // growth of a node's memory, on average; zero: unknown
	CPU      time.Duration `json:"cpu_ns"`     // of the client processes, while the locks were held
	For      time.Duration `json:"for_ns"`
}

// A Fault is an intervention on nodes, and its effect on the callers.
type Fault struct {
	What string        `json:"what"` // "kill 2 of 5"
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"` // time at which the nodes ran again

	Without  time.Duration   `json:"without_ns"`  // longest time without an acquisition that touches the fault
	Recovery time.Duration   `json:"recovery_ns"` // from To until the rate was at 90 % of the rate before; -1: never
	Before   Histogram       `json:"before"`      // acquisitions that ended before the fault
	During   Histogram       `json:"during"`      // acquisitions that ended within it
	Slices   []time.Duration `json:"slices_ns"`   // p99 of each SliceLength of the trial; zero: no acquisition
}

// SliceLength is the resolution of Fault.Slices.
const SliceLength = 100 * time.Millisecond
