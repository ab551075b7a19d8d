package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
)

// ServerEnv names the environment variable that says which server kind Process
// starts: a path, or a name on PATH. Default: redis-server, else valkey-server.
const ServerEnv = "REDLOCK_TEST_SERVER"

// servers are the programs that are looked for, in order of preference.
var servers = []string{"redis-server", "valkey-server"}

// Server returns the path of the program that kind Process starts.
func Server() (string, error) {
	if program := os.Getenv(ServerEnv); program != "" {
		path, err := exec.LookPath(program)
		if err != nil {
			return "", fmt.Errorf("%s: %w", ServerEnv, err)
		}
		return filepath.Abs(path)
	}
	for _, name := range servers {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %s is on PATH; please install one", strings.Join(servers, ", "))
}

// process drives redis-server processes, each in a directory of its own below the
// fleet's.
type process struct {
	program string
	opts    Options
	dir     string
	spawner *spawner
	nodes   []*processNode
}

type processNode struct {
	dir  string
	port int
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has been waited for
}

func newProcess(_ context.Context, opts Options) (Driver, error) {
	program, err := Server()
	if err != nil {
		return nil, err
	}
	sweepProcesses()
	dir, err := makeFleetDir()
	if err != nil {
		return nil, err
	}
	p := &process{program: program, opts: opts, dir: dir, spawner: newSpawner()}
	for range opts.Nodes {
		p.nodes = append(p.nodes, &processNode{})
	}
	return p, nil
}

func (p *process) Launch(ctx context.Context, i int) (url string, err error) {
	n := p.nodes[i]
	err = p.opts.OnPort(i, func(port int) error {
		n.port, n.dir = port, nodeDir(p.dir, port)
		return p.Start(ctx, i, Lost)
	})
	return "redis://" + Loopback(n.port), err
}

func (p *process) Start(ctx context.Context, i int, m Memory) error {
	n := p.nodes[i]
	if m == Lost {
		if err := os.RemoveAll(n.dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	// Each run has a log of its own, because an earlier run's errors must not explain this one's end.
	log, err := os.Create(filepath.Join(n.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close() // the server has its own copy
	args, err := p.args(i)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.program, args...)
	cmd.Dir = n.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	if err := p.spawner.start(cmd); err != nil {
		return err
	}
	done := make(chan struct{})
	n.cmd, n.done = cmd, done
	go func() {
		defer close(done)
		cmd.Wait() // how it ended is in the log, and asked for only if unexpected
	}()

	if err := n.awaitReady(ctx); err != nil {
		p.Kill(ctx, i)
		return err
	}
	return nil
}

// args returns the command line of node i.
func (p *process) args(i int) ([]string, error) {
	n := p.nodes[i]
	args := []string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(n.port),
		"--dir", n.dir,
		"--pidfile", filepath.Join(n.dir, pidFile),
		"--daemonize", "no",
	}
	switch p.opts.Mode {
	case Sentinel: // insists on a file that it can write to
		config := filepath.Join(n.dir, "sentinel.conf")
		return append([]string{config, "--sentinel"}, args...), os.WriteFile(config, nil, 0o600)
	case ClusterNode:
		args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	}
	return append(args, p.opts.ServerArgs(i)...), nil
}

// awaitReady waits for this process's PONG, and checks whose it is, because another server that has
// the port would answer just as well, until ours gives up.
func (n *processNode) awaitReady(ctx context.Context) error {
	exited := func() error {
		select {
		case <-n.done:
			return n.exitError()
		default:
			return nil
		}
	}
	rawURL := "redis://" + Loopback(n.port)
	if err := AwaitReady(ctx, rawURL, exited); err != nil {
		return err
	}
	c, err := dial(ctx, rawURL)
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := redis.String(redis.DoContext(c, ctx, "INFO", "server"))
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("\r\nprocess_id:%d\r\n", n.cmd.Process.Pid); !strings.Contains(info, want) {
		return fmt.Errorf("%w: another Redis server answers on %s", ErrPortTaken, Loopback(n.port))
	}
	return nil
}

func (n *processNode) exitError() error {
	log, _ := os.ReadFile(filepath.Join(n.dir, "log"))
	err := fmt.Errorf("%s ended: %s; the end of its log:\n%s", filepath.Base(n.cmd.Path), n.cmd.ProcessState, lastLines(log, 5))
	if strings.Contains(string(log), "ddress already in use") {
		return fmt.Errorf("%w: %w", ErrPortTaken, err)
	}
	return err
}

func (p *process) Kill(_ context.Context, i int) error {
	n := p.nodes[i]
	if n.cmd == nil {
		return nil
	}
	if err := n.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-n.done
	return nil
}

func (p *process) Close() error {
	err := Parallel(len(p.nodes), func(i int) error {
		err := p.Kill(context.Background(), i)
		ReleasePort(p.nodes[i].port)
		return err
	})
	p.spawner.close()
	return errors.Join(err, os.RemoveAll(p.dir))
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
	starts chan startRequest
	done   chan struct{} // closed by close
	ended  sync.WaitGroup
}

type startRequest struct {
	cmd *exec.Cmd
	err chan error
}

func newSpawner() *spawner {
	s := &spawner{starts: make(chan startRequest), done: make(chan struct{})}
	s.ended.Go(func() {
		// Unlocked only when the last child has been waited for.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			select {
			case r := <-s.starts:
				r.err <- r.cmd.Start()
			case <-s.done:
				return
			}
		}
	})
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	r := startRequest{cmd: cmd, err: make(chan error, 1)}
	select {
	case s.starts <- r:
		return <-r.err
	case <-s.done:
		return errors.New("the fleet is closed")
	}
}

// close ends the thread. All children must have ended.
func (s *spawner) close() {
	close(s.done)
	s.ended.Wait()
}
