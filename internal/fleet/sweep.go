package fleet

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// owner names the process that a leftover belongs to. A pid alone would not do, because
// it is used again, and means another process in another container that
// shares the Docker engine or the temporary directory.
type owner struct {
	pid   int
	start string // when the process began, in the system's own terms; "0" where there is no way to know
	host  string // a hash of the host's name and pid namespace
}

// self returns this process as an owner.
var self = sync.OnceValue(func() owner {
	name, _ := os.Hostname() // without a name all such hosts look alike, which only matters if they share an engine
	h := fnv.New32a()
	fmt.Fprint(h, name, "/", pidNamespace())
	start, _ := processStart(os.Getpid())
	return owner{pid: os.Getpid(), start: start, host: fmt.Sprintf("%08x", h.Sum32())}
})

// Owner returns the name of this process as the owner of servers, for what a dead process may
// leave behind, such as containers.
func Owner() string { return self().String() }

// OwnerDead reports whether the process that Owner named so surely lives no more.
func OwnerDead(name string) bool {
	o, ok := parseOwner(name)
	return ok && o.dead()
}

// String returns the owner as it is in directory names and Docker labels.
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

// dead reports whether the owner surely lives no more. Owners on other hosts count as living,
// because this host cannot know.
func (o owner) dead() bool {
	if o.host != self().host {
		return false
	}
	start, alive := processStart(o.pid)
	return !alive || start != o.start
}

// A fleet's directory has its owner in its name, so that there is no moment at which it exists
// without an owner, and a node's directory has the port.
//
//	$TMPDIR/redquorum-fleet_<owner>_<random>/node-<port>/{pid,log,appendonlydir}
const (
	fleetDirPrefix = "redquorum-fleet_"
	nodeDirPrefix  = "node-"
	pidFile        = "pid"
)

func makeFleetDir() (string, error) {
	dir, err := os.MkdirTemp("", fleetDirPrefix+self().String()+"_*")
	if err != nil {
		return "", err
	}
	// The server reports its working directory with symlinks resolved, and the
	// sweep compares it.
	return filepath.EvalSymlinks(dir)
}

func nodeDir(fleetDir string, port int) string {
	return filepath.Join(fleetDir, nodeDirPrefix+strconv.Itoa(port))
}

// sweepProcesses ends the servers, and removes the directories, of fleets whose owner died
// without Close. It ignores errors, because missing rights or a race with another sweep must
// not keep a new fleet from starting.
func sweepProcesses() {
	tmp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(tmp, fleetDirPrefix+"*"))
	for _, dir := range dirs {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), fleetDirPrefix), "_")
		if OwnerDead(name) {
			sweepFleetDir(dir)
		}
	}
}

func sweepFleetDir(dir string) {
	nodes, _ := filepath.Glob(filepath.Join(dir, nodeDirPrefix+"*"))
	for _, node := range nodes {
		port := strings.TrimPrefix(filepath.Base(node), nodeDirPrefix)
		text, err := os.ReadFile(filepath.Join(node, pidFile))
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		// The pid may belong to another process by now.
		if err != nil || pid <= 1 || !isServer(pid, node, port) {
			continue
		}
		if p, err := os.FindProcess(pid); err == nil {
			p.Kill()
			p.Release()
			awaitEnd(pid)
		}
	}
	os.RemoveAll(dir)
}

// awaitEnd waits, within a bound, until a process that is no child of ours has ended, because
// it could write to the directory that is about to be removed.
func awaitEnd(pid int) {
	tick := time.NewTicker(readyTick)
	defer tick.Stop()
	for range 100 {
		if _, alive := processStart(pid); !alive {
			return
		}
		<-tick.C
	}
}

// namesServer reports whether a command line is one of the servers'.
func namesServer(cmdline string) bool {
	if named := os.Getenv(ServerEnv); named != "" && strings.Contains(cmdline, filepath.Base(named)) {
		return true
	}
	return slices.ContainsFunc(servers, func(name string) bool { return strings.Contains(cmdline, name) })
}
