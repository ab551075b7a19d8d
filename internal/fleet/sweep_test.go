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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// parentEnv makes the test binary start a fleet, instead of running tests, and wait until it is
// killed.
const parentEnv = "FLEET_TEST_PARENT"

// report describes the fleet of the parent.
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
	io.Copy(io.Discard, os.Stdin) // blocks until the test, which holds the other end, closes it or ends
	if f != nil {
		f.Close()
	}
}

// crash starts a fleet in its own process, calls look, and kills that process with kill -9.
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
	return testenv.Servers(t, fleet.Addrs, fleet.Options{URLs: r.URLs})
}

func TestStartSweepsDirectoriesOfDeadParents(t *testing.T) {
	testenv.NeedRedis(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	crash(t, fleet.Process, func(report) {
		require.Len(t, fleetDirs(t, tmp), 1)
		f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1})
		require.Len(t, fleetDirs(t, tmp), 2, "the directory of a living parent must stay")
		require.NoError(t, f.Close())
	})
	require.Len(t, fleetDirs(t, tmp), 1)
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1})
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

// If the death of the parent does not end its servers, the sweep does, and ends no other servers.
func TestSweepEndsLeftoverServersOnly(t *testing.T) {
	testenv.NeedRedis(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	inDirOf := func(owner string) string { return filepath.Join(tmp, fleet.FleetDirPrefix+owner+"_1") }

	dead := deadOwner(t)
	leftover := orphan(t, inDirOf(dead))
	foreign := orphan(t, inDirOf(onAnotherHost(dead)))
	living := orphan(t, inDirOf(fleet.Owner()))
	samePort := orphan(t, filepath.Join(tmp, "foreign")) // belongs to no fleet, but has a dead server's port
	require.NoError(t, os.MkdirAll(fleet.NodeDir(inDirOf(dead), samePort.port), 0o700))

	fleet.SweepProcesses()

	leftover.ended(t)
	assert.NoDirExists(t, inDirOf(dead))
	for name, o := range map[string]*orphanServer{"foreign": foreign, "living": living, "same port": samePort} {
		o.runs(t, name)
	}
}

// deadOwner returns the owner name of a process on this host that has ended.
func deadOwner(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	require.NoError(t, cmd.Run())
	_, host, _ := strings.Cut(fleet.Owner(), "-")
	return fmt.Sprintf("%d-%s", cmd.Process.Pid, host)
}

func onAnotherHost(owner string) string { return owner + "elsewhere" }

// orphanServer is a redis-server that runs like a server of a fleet, but without a fleet.
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

// The parent-death signal is sent when the thread that forked ends, not the process.
func TestServersOutliveTheThreadThatStartedThem(t *testing.T) {
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1})
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		ended <- f.Restart(context.Background(), 0, fleet.Kept)
	}()
	require.NoError(t, <-ended)
	before := connect(t, f, 0)
	before.do("PING")
	before.silent("the server must live on")
}

func TestOnlyOwnersOfThisHostAreKnownToBeDead(t *testing.T) {
	_, host, _ := strings.Cut(fleet.Owner(), "-")
	for _, name := range []string{onAnotherHost(deadOwner(t)), "", "x", "1-2", "0-" + host, "-1-" + host, "a-" + host} {
		assert.False(t, fleet.OwnerDead(name), name)
	}
}
