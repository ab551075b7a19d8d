package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// children are the server processes of a fleet, one a node, below a directory that goes with
// them. They end with this process, too: on Linux at once, elsewhere by the next sweep. Calls for
// one node must not overlap.
type children struct {
	dir     string
	spawner *spawner
	nodes   []child
}

type child struct {
	cmd  *exec.Cmd     // nil: none yet
	log  string        // file
	done chan struct{} // closed when cmd has been waited for
}

// newChildren makes the directory, and starts nothing. It removes what dead fleets have left.
func newChildren(nodes int) (*children, error) {
	sweepProcesses()
	dir, err := makeFleetDir()
	if err != nil {
		return nil, err
	}
	return &children{dir: dir, spawner: newSpawner(), nodes: make([]child, nodes)}, nil
}

// Dir is the directory, of which Close removes all.
func (c *children) Dir() string { return c.dir }

// Run starts the process of node i, in place of one that has ended. Its output goes to the file
// "log" in cmd.Dir.
func (c *children) Run(i int, cmd *exec.Cmd) error {
	// Each run has a log of its own, because an earlier run's errors must not explain this one's end.
	log, err := os.Create(filepath.Join(cmd.Dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close() // the server has its own copy
	cmd.Stdout, cmd.Stderr = log, log
	tie(cmd)
	if err := c.spawner.start(cmd); err != nil {
		return err
	}
	done := make(chan struct{})
	c.nodes[i] = child{cmd, log.Name(), done}
	go func() {
		defer close(done)
		cmd.Wait() // how it ended is in the log, and asked for only if unexpected
	}()
	return nil
}

// Process is node i's, which must have been started.
func (c *children) Process(i int) *os.Process { return c.nodes[i].cmd.Process }

// Ended returns nil while the process of node i runs, and then how it ended. The error matches
// ErrPortTaken if the log says so.
func (c *children) Ended(i int) error {
	n := c.nodes[i]
	select {
	case <-n.done:
	default:
		return nil
	}
	log, _ := os.ReadFile(n.log)
	err := fmt.Errorf("%s ended: %s; the end of its log:\n%s", filepath.Base(n.cmd.Path), n.cmd.ProcessState, lastLines(log, 5))
	if strings.Contains(string(log), "ddress already in use") {
		return fmt.Errorf("%w: %w", ErrPortTaken, err)
	}
	return err
}

// Kill ends the process of node i, if it runs, and returns when it has ended.
func (c *children) Kill(_ context.Context, i int) error {
	n := c.nodes[i]
	if n.cmd == nil {
		return nil
	}
	if err := n.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-n.done
	return nil
}

// Close ends all processes and removes the directory.
func (c *children) Close() error {
	err := Parallel(len(c.nodes), func(i int) error { return c.Kill(context.Background(), i) })
	c.spawner.close()
	return errors.Join(err, os.RemoveAll(c.dir))
}

func lastLines(log []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// spawner starts all of a fleet's processes from one operating system thread.
// On Linux a child's parent-death signal is tied to the thread that forked it,
// and the Go runtime ends threads at will. Started from any other goroutine, a server
// could be killed at any time while the process lives.
type spawner struct {
	starts chan func()
	ended  sync.WaitGroup
}

func newSpawner() *spawner {
	s := &spawner{starts: make(chan func())}
	s.ended.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for start := range s.starts {
			start()
		}
	})
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	err := make(chan error, 1)
	s.starts <- func() { err <- cmd.Start() }
	return <-err
}

// close ends the thread. All children must have ended, and none is started any more.
func (s *spawner) close() {
	close(s.starts)
	s.ended.Wait()
}
