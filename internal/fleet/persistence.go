package fleet

import "fmt"

// Persistence is what a node writes to disk, and so what it can remember when it
// was killed.
type Persistence string

const (
	// None: nothing. Restart with Kept memory is unsupported.
	None Persistence = "none"
	// EverySecond: appendfsync everysec. A killed process remembers all that it
	// handed to the operating system in time, which is nearly all; after a power
	// failure, which no fleet can make, the last second is gone.
	EverySecond Persistence = "everysec"
	// Always: appendfsync always. Every write that was answered is kept.
	Always Persistence = "always"
)

// persistence is what node i writes.
func (o Options) persistence(i int) Persistence {
	switch {
	case o.Persistence != nil:
		return o.Persistence[i]
	case o.Volatile:
		return None
	}
	return Always
}

func (o Options) checkPersistence(kind Kind) error {
	switch {
	case kind != Process:
		return badOption("Persistence", o.Persistence, fmt.Sprintf("is for kind %s, not %s", Process, kind))
	case o.Volatile:
		return badOption("Persistence", o.Persistence, "contradicts Volatile")
	case len(o.Persistence) != o.nodes():
		return badOption("Persistence", o.Persistence, fmt.Sprintf("must be one a node, and there are %d nodes", o.nodes()))
	}
	for _, p := range o.Persistence {
		switch p {
		case None, EverySecond, Always:
		default:
			return badOption("Persistence", o.Persistence, fmt.Sprintf("there are %s, %s and %s", None, EverySecond, Always))
		}
	}
	return nil
}

// serverArgs make a server remember what p says, and never drop a lock to save
// memory; for containers too.
func serverArgs(p Persistence) []string {
	args := []string{"--save", "", "--maxmemory-policy", "noeviction"}
	if p == None {
		return append(args, "--appendonly", "no")
	}
	return append(args, "--appendonly", "yes", "--appendfsync", string(p))
}
