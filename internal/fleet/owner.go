package fleet

import (
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"sync"
)

// owner names the process that a leftover belongs to. A pid alone would not do:
// it is used again, and means another process in another container that
// shares the Docker engine or the temporary directory.
type owner struct {
	pid   int
	start string // when the process began, in the system's own terms; "0" where it does not tell
	host  string // a hash of the host's name and pid namespace
}

// self is this process as an owner.
var self = sync.OnceValue(func() owner {
	name, _ := os.Hostname() // without a name all such hosts look alike, which only matters if they share an engine
	h := fnv.New32a()
	fmt.Fprint(h, name, "/", pidNamespace())
	start, _ := processStart(os.Getpid())
	return owner{pid: os.Getpid(), start: start, host: fmt.Sprintf("%08x", h.Sum32())}
})

// String is the owner in directory names and Docker labels.
func (o owner) String() string {
	return fmt.Sprintf("%d-%s-%s", o.pid, o.start, o.host)
}

func parseOwner(s string) (owner, bool) {
	parts := strings.Split(s, "-")
	if len(parts) != 3 {
		return owner{}, false
	}
	pid, err := strconv.Atoi(parts[0])
	return owner{pid: pid, start: parts[1], host: parts[2]}, err == nil && pid > 0
}

// dead is true only if the owner surely lives no more. Of other hosts nothing is
// known, so they count as living.
func (o owner) dead() bool {
	if o.host != self().host {
		return false
	}
	start, alive := processStart(o.pid)
	return !alive || start != o.start
}
