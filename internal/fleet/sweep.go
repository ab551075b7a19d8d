package fleet

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/gomodule/redigo/redis"
)

// Owner returns the name of this process as the owner of its resources, such as containers and
// directories, which may be left when it dies.
func Owner() string { return fmt.Sprintf("%d-%s", os.Getpid(), host()) }

// host is a hash of the host's name and pid namespace, because the same pid is another process in
// another container that shares the Docker engine or the temporary directory.
var host = sync.OnceValue(func() string {
	name, _ := os.Hostname()                         // without a name all such hosts have one name, which only matters if they share an engine
	namespace, _ := os.Readlink("/proc/self/ns/pid") // exists only on Linux
	h := fnv.New32a()
	fmt.Fprint(h, name, "/", namespace)
	return fmt.Sprintf("%08x", h.Sum32())
})

// OwnerDead reports whether the process with that name from Owner is surely dead. Owners on other
// hosts count as living, because this host cannot know. If another process reuses the pid,
// leftovers stay until that process ends.
func OwnerDead(name string) bool {
	number, at, _ := strings.Cut(name, "-")
	pid, err := strconv.Atoi(number)
	return err == nil && pid > 0 && at == host() && !alive(pid)
}

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil { // on Windows, where FindProcess opens the process
		return false
	}
	defer p.Release()
	return !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// The name of a fleet's directory contains its owner, so that the directory never exists without an
// owner. The name of a node's directory contains the port.
//
//	$TMPDIR/redquorum-fleet_<owner>_<random>/node-<port>/{log,appendonlydir}
const (
	fleetDirPrefix = "redquorum-fleet_"
	nodeDirPrefix  = "node-"
)

func nodeDir(fleetDir string, port int) string {
	return filepath.Join(fleetDir, nodeDirPrefix+strconv.Itoa(port))
}

// sweepProcesses ends the servers, and removes the directories, of fleets whose owner died
// without Close. It ignores errors, because missing rights or a race with another sweep must
// not keep a new fleet from starting.
func sweepProcesses() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), fleetDirPrefix+"*"))
	for _, dir := range dirs {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), fleetDirPrefix), "_")
		if !OwnerDead(name) {
			continue
		}
		nodes, _ := filepath.Glob(filepath.Join(dir, nodeDirPrefix+"*"))
		for _, node := range nodes {
			sweepServer(node)
		}
		os.RemoveAll(dir)
	}
}

// sweepServer ends the server of a node's directory if it runs: the server on the directory's port,
// unless that server uses another directory. On Linux servers die with their owner, so there are
// none to end. On other systems a paused server, which does not answer, is left.
func sweepServer(dir string) {
	port, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), nodeDirPrefix))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), addrsTimeout)
	defer cancel()
	c, err := dial(ctx, "redis://"+Loopback(port))
	if err != nil {
		return
	}
	defer c.Close()
	dir, _ = filepath.EvalSymlinks(dir) // the form in which a server reports its directory
	if setting, _ := redis.Strings(c.Do("CONFIG", "GET", "dir")); len(setting) == 2 && setting[1] == dir {
		c.Do("SHUTDOWN", "NOSAVE") // without an answer: it fails when the server has ended
	}
}
