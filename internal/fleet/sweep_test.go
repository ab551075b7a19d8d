package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/container"
	"github.com/redquorum/redquorum/internal/need"
)

// parentEnv makes the test binary start a fleet, instead of running tests,
// and wait to be killed.
const parentEnv = "FLEET_TEST_PARENT"

// report is what the parent tells about its fleet.
type report struct {
	Owner string
	URLs  []string
	Error string
}

func parent(kind fleet.Kind) {
	f, err := fleet.Start(context.Background(), kind, fleet.Options{Nodes: 2})
	r := report{Owner: fleet.Owner()}
	if err != nil {
		r.Error = err.Error()
	} else {
		r.URLs = f.URLs()
	}
	json.NewEncoder(os.Stdout).Encode(r)
	io.Copy(io.Discard, os.Stdin) // ends at the latest with the test, which holds the other end
	if f != nil {
		f.Close()
	}
}

// crash starts a fleet in a process of its own, looks at it, and kills that process
// with kill -9.
func crash(t *testing.T, kind fleet.Kind, look func(report)) report {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"="+string(kind))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	killed := sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait() })
	defer killed()

	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(line, &r))
	require.Empty(t, r.Error)
	look(r)
	assert.False(t, fleet.OwnerDead(r.Owner), "a living owner must not look dead")
	killed()
	assert.True(t, fleet.OwnerDead(r.Owner), "a dead owner must look dead")
	return r
}

func given(t *testing.T, r report) fleet.Fleet {
	t.Helper()
	return need.Servers(t, fleet.Addrs, fleet.Options{URLs: r.URLs})
}

func TestStartSweepsDirectoriesOfDeadParents(t *testing.T) {
	need.Redis(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	crash(t, fleet.Process, func(report) {
		require.Len(t, fleetDirs(t, tmp), 1)
		f := need.Servers(t, fleet.Process, fleet.Options{Nodes: 1})
		require.Len(t, fleetDirs(t, tmp), 2, "the directory of a living parent must stay")
		require.NoError(t, f.Close())
	})
	require.Len(t, fleetDirs(t, tmp), 1)
	f := need.Servers(t, fleet.Process, fleet.Options{Nodes: 1})
	require.Len(t, fleetDirs(t, tmp), 1, "only the new fleet's")
	require.NoError(t, f.Close())
	require.Empty(t, fleetDirs(t, tmp))
}

func fleetDirs(t *testing.T, tmp string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(tmp, fleet.FleetDirPrefix+"*"))
	require.NoError(t, err)
	return dirs
}

// Where the parent's death does not end the servers, the sweep does, and ends no others.
func TestSweepEndsLeftoverServersOnly(t *testing.T) {
	need.Redis(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	inDirOf := func(owner string) string { return filepath.Join(tmp, fleet.FleetDirPrefix+owner+"_1") }

	dead := deadOwner(t)
	leftover := orphan(t, inDirOf(dead))
	foreign := orphan(t, inDirOf(onAnotherHost(dead)))
	living := orphan(t, inDirOf(fleet.Owner()))
	samePort := orphan(t, filepath.Join(tmp, "foreign")) // of no fleet, on a dead server's port
	require.NoError(t, os.MkdirAll(fleet.NodeDir(inDirOf(dead), samePort.port), 0o700))

	fleet.SweepProcesses()

	leftover.ended(t)
	assert.NoDirExists(t, inDirOf(dead))
	for name, o := range map[string]*orphanServer{"foreign": foreign, "living": living, "same port": samePort} {
		o.runs(t, name)
	}
}

// deadOwner returns the owner that a process of this host was, which has ended.
func deadOwner(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	require.NoError(t, cmd.Run())
	_, host, _ := strings.Cut(fleet.Owner(), "-")
	return fmt.Sprintf("%d-%s", cmd.Process.Pid, host)
}

func onAnotherHost(owner string) string { return owner + "elsewhere" }

// orphanServer is a redis-server that runs as a fleet's would, without a fleet.
type orphanServer struct {
	port int
	cmd  *exec.Cmd
	done chan struct{}
}

func orphan(t *testing.T, dir string) *orphanServer {
	t.Helper()
	o := &orphanServer{port: freePorts(t, 1)[0], done: make(chan struct{})}
	dir = fleet.NodeDir(dir, o.port)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	program, err := fleet.Server()
	require.NoError(t, err)
	o.cmd = exec.Command(program, "--bind", "127.0.0.1", "--port", strconv.Itoa(o.port), "--dir", dir)
	o.cmd.Dir = dir
	require.NoError(t, o.cmd.Start())
	go func() { defer close(o.done); o.cmd.Wait() }()
	t.Cleanup(func() { o.cmd.Process.Kill(); <-o.done })
	require.NoError(t, fleet.AwaitReady(t.Context(), "redis://"+fleet.Loopback(o.port), nil))
	return o
}

func (o *orphanServer) ended(t *testing.T) {
	t.Helper()
	select {
	case <-o.done:
	case <-time.After(longEnough):
		require.Fail(t, "the leftover server must have been ended")
	}
}

func (o *orphanServer) runs(t *testing.T, name string) {
	t.Helper()
	select {
	case <-o.done:
		assert.Fail(t, "the "+name+" server must run on")
	default:
	}
}

// A parent-death signal goes off when the thread that forked ends, not the process.
func TestServersOutliveTheThreadThatStartedThem(t *testing.T) {
	f := need.Servers(t, fleet.Process, fleet.Options{Nodes: 1})
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		ended <- f.Restart(context.Background(), 0, fleet.Kept)
	}()
	require.NoError(t, <-ended)
	before := connect(t, f, 0)
	before.do("PING")
	before.silent("the server must live on")
}

func TestStartSweepsContainersOfDeadParents(t *testing.T) {
	need.Docker(t)
	r := crash(t, fleet.Docker, func(r report) {
		require.NoError(t, need.Servers(t, fleet.Docker, fleet.Options{Nodes: 1}).Close())
		containers, networks := dockerObjects(t, r.Owner)
		require.NotZero(t, containers, "the containers of a living parent must stay")
		require.Equal(t, 1, networks)
		given(t, r)
	})
	require.NoError(t, need.Servers(t, fleet.Docker, fleet.Options{Nodes: 1}).Close())
	for name, owner := range map[string]string{"the dead parent": r.Owner, "the closed fleets": fleet.Owner()} {
		containers, networks := dockerObjects(t, owner)
		assert.Zero(t, containers, "containers of "+name)
		assert.Zero(t, networks, "networks of "+name)
	}
}

// dockerObjects counts the containers and networks of an owner.
func dockerObjects(t *testing.T, owner string) (containers, networks int) {
	t.Helper()
	pool, err := dockertest.NewPool("")
	require.NoError(t, err)
	label := container.OwnerLabel + "=" + owner
	cs, err := pool.Client.ListContainers(docker.ListContainersOptions{
		All: true, Context: t.Context(), Filters: map[string][]string{"label": {label}},
	})
	require.NoError(t, err)
	ns, err := pool.Client.FilteredListNetworks(docker.NetworkFilterOpts{"label": {label: true}})
	require.NoError(t, err)
	return len(cs), len(ns)
}

func TestOnlyOwnersOfThisHostAreKnownToBeDead(t *testing.T) {
	_, host, _ := strings.Cut(fleet.Owner(), "-")
	for _, name := range []string{onAnotherHost(deadOwner(t)), "", "x", "1-2", "0-" + host, "-1-" + host, "a-" + host} {
		assert.False(t, fleet.OwnerDead(name), name)
	}
}
