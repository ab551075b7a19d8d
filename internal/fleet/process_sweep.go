package fleet

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A fleet's directory tells in its name whose it is, so that there is no moment
// at which it exists without an owner, and a node's directory tells the port.
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

// sweepProcesses ends the servers, and removes the directories, of fleets whose
// owner died without Close. It does what it can: what somebody else's rights
// or a race with another sweep keep it from must not keep a new fleet from starting.
func sweepProcesses() {
	tmp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(tmp, fleetDirPrefix+"*"))
	for _, dir := range dirs {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), fleetDirPrefix), "_")
		if o, ok := parseOwner(name); ok && o.dead() {
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
		// The pid may be another process's by now.
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

// awaitEnd waits, within a bound, until a process that is no child of ours has
// ended: it could write to the directory that is about to be removed.
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

// namesServer tells whether a command line is one of the servers'.
func namesServer(cmdline string) bool {
	for _, name := range servers {
		if strings.Contains(cmdline, name) {
			return true
		}
	}
	return false
}
