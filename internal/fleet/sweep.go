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

// Owner returns the name of this process as the owner of what it may leave behind when it dies,
// such as containers and directories.
func Owner() string { return fmt.Sprintf("%d-%s", os.Getpid(), host()) }

// host is a hash of the host's name and pid namespace, because the same pid is another process in
// another container that shares the Docker engine or the temporary directory.
var host = sync.OnceValue(func() string {
	name, _ := os.Hostname()                         // without a name all such hosts look alike, which only matters if they share an engine
	namespace, _ := os.Readlink("/proc/self/ns/pid") // which only Linux has
	h := fnv.New32a()
	fmt.Fprint(h, name, "/", namespace)
	return fmt.Sprintf("%08x", h.Sum32())
})

// OwnerDead reports whether the process that Owner named so surely lives no more. Owners on other
// hosts count as living, because this host cannot know. A pid that is used again keeps leftovers
// for as long as the process that has it now lives.
func OwnerDead(name string) bool {
	number, at, _ := strings.Cut(name, "-")
	pid, err := strconv.Atoi(number)
	return err == nil && pid > 0 && at == host() && !alive(pid)
}

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil { // on Windows, which opens the process
		return false
	}
	defer p.Release()
	return !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
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
	return os.MkdirTemp("", fleetDirPrefix+Owner()+"_*")
}

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

// sweepServer ends the server of a node's directory, if there is one: on the directory's port, with
// the pid that it wrote there. Either could be another's by now. On Linux there is none, because
// servers die with their owner; elsewhere one that does not answer, because it is paused, is left.
func sweepServer(dir string) {
	wrote, err := os.ReadFile(filepath.Join(dir, pidFile))
	port, notPort := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), nodeDirPrefix))
	if err != nil || notPort != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
	defer cancel()
	c, err := dial(ctx, "redis://"+Loopback(port))
	if err != nil {
		return
	}
	defer c.Close()
	if pid, err := serverPID(ctx, c); err == nil && strconv.Itoa(pid) == strings.TrimSpace(string(wrote)) {
		p, err := os.FindProcess(pid)
		if err != nil {
			return
		}
		defer p.Release()
		p.Kill()
		c.Receive() // fails when the server has ended, and does not write to the directory any more
	}
}

// serverPID returns the process id of the server that answers.
func serverPID(ctx context.Context, c redis.Conn) (int, error) {
	info, err := redis.String(redis.DoContext(c, ctx, "INFO", "server"))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(info, "\r\nprocess_id:")
	text, _, _ := strings.Cut(after, "\r\n")
	return strconv.Atoi(text)
}
