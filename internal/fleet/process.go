package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// ServerEnv is the environment variable with the server of kind Process: a path, or a name on PATH.
// Default: redis-server, otherwise valkey-server.
const ServerEnv = "REDLOCK_TEST_SERVER"

// servers are the names of the server programs, in order of preference.
var servers = []string{"redis-server", "valkey-server"}

// Server returns the path of the server program of kind Process.
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

// process drives redis-server processes, below a temporary directory.
type process struct {
	program string
	opts    Options
	dir     string
	nodes   []child
}

type child struct {
	port int           // 0 before the first start
	cmd  *exec.Cmd     // nil before the first start
	done chan struct{} // closed when cmd has been waited for

	killed chan struct{} // closed when Kill begins
}

func newProcess(_ context.Context, opts Options) (Driver, error) {
	program, err := Server()
	if err != nil {
		return nil, err
	}
	sweepProcesses()
	dir, err := os.MkdirTemp("", fleetDirPrefix+Owner()+"_*")
	if err != nil {
		return nil, err
	}
	return &process{program: program, opts: opts, dir: dir, nodes: make([]child, opts.Nodes)}, nil
}

func (p *process) Launch(ctx context.Context, i int) (url string, err error) {
	err = p.opts.OnPort(i, func(port int) error {
		p.nodes[i].port = port
		return p.Start(ctx, i, Lost)
	})
	return p.url(i), err
}

// nodeDir returns the directory of node i.
func (p *process) nodeDir(i int) string { return nodeDir(p.dir, p.nodes[i].port) }

// url returns the URL of node i.
func (p *process) url(i int) string {
	if p.opts.Arguments != nil {
		return "unix://" + filepath.Join(p.nodeDir(i), "socket")
	}
	return "redis://" + Loopback(p.nodes[i].port)
}

func (p *process) Start(ctx context.Context, i int, m Memory) error {
	n, dir := &p.nodes[i], p.nodeDir(i)
	if m == Lost {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	args, err := p.args(i)
	if err != nil {
		return err
	}
	// Each run has its own log, because an earlier run's errors must not explain the end of this
	// run.
	log, err := os.Create(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	defer log.Close() // the server has its own copy
	cmd := exec.Command(p.program, args...)
	cmd.Dir = dir
	if p.opts.Clocks != nil {
		env, err := p.opts.Clocks[i].env()
		if err != nil {
			return err
		}
		cmd.Env = append(os.Environ(), env...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	tie(cmd)
	done, err := spawn(cmd)
	if err != nil {
		return err
	}
	n.cmd, n.done, n.killed = cmd, done, make(chan struct{})
	if err := p.awaitReady(ctx, i); err != nil {
		p.Kill(ctx, i)
		return err
	}
	if p.opts.Started != nil {
		p.opts.Started(i, cmd.Process.Pid)
	}
	if p.opts.Ended != nil {
		go p.awaitEnd(i, *n)
	}
	return nil
}

// awaitEnd reports the end of a server that the fleet did not kill.
func (p *process) awaitEnd(i int, run child) {
	<-run.done
	select {
	case <-run.killed:
	default:
		p.opts.Ended(i)
	}
}

const logFile = "log"

// args returns the command line of node i.
func (p *process) args(i int) ([]string, error) {
	dir := p.nodeDir(i)
	if p.opts.Arguments != nil {
		return append(slices.Clone(p.opts.Arguments), "--unixsocket", filepath.Join(dir, "socket")), nil
	}
	args := []string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(p.nodes[i].port),
		"--dir", dir,
		"--daemonize", "no",
	}
	switch p.opts.Mode {
	case Sentinel: // requires a writable file
		config := filepath.Join(dir, "sentinel.conf")
		return append([]string{config, "--sentinel"}, args...), os.WriteFile(config, nil, 0o600)
	case ClusterNode:
		args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	}
	return append(args, p.opts.ServerArgs(i)...), nil
}

// spawn starts a process, and returns a channel that is closed when the process has ended. Its
// goroutine keeps its thread, because on Linux the process dies with the thread that forked it, and
// the Go runtime ends threads at will.
func spawn(cmd *exec.Cmd) (done chan struct{}, err error) {
	started, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // the error is ignored: the log has the reason for an unexpected end
		}
	}()
	return done, <-started
}

// awaitReady waits for PONG from this process. It checks the identity of the server, because
// another server on the port would also answer until ours exits. A Unix socket belongs to one
// process, so awaitReady only waits for it.
func (p *process) awaitReady(ctx context.Context, i int) error {
	ended := func() error { return p.ended(i) }
	if p.opts.Arguments != nil {
		return await(ctx, ended, func(ctx context.Context) error {
			c, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(p.url(i), "unix://"))
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	if err := AwaitReady(ctx, p.url(i), ended); err != nil {
		return err
	}
	var taken error
	err := await(ctx, ended, func(ctx context.Context) error {
		c, err := dial(ctx, p.url(i))
		if err != nil {
			return err
		}
		defer c.Close()
		info, err := redis.String(redis.DoContext(c, ctx, "INFO", "server"))
		if err == nil && !strings.Contains(info, fmt.Sprintf("\nprocess_id:%d\r", p.nodes[i].cmd.Process.Pid)) {
			taken = fmt.Errorf("%w: another Redis server answers on %s", ErrPortTaken, Loopback(p.nodes[i].port))
		}
		return err
	})
	return cmp.Or(err, taken)
}

// ended returns nil while the process of node i runs, and then the reason of its end. The error
// matches ErrPortTaken if the log has that error.
func (p *process) ended(i int) error {
	n := p.nodes[i]
	select {
	case <-n.done:
	default:
		return nil
	}
	log, _ := os.ReadFile(filepath.Join(n.cmd.Dir, logFile))
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	err := fmt.Errorf("%s ended: %s; the end of its log:\n%s",
		filepath.Base(n.cmd.Path), n.cmd.ProcessState, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	if strings.Contains(string(log), "ddress already in use") {
		return fmt.Errorf("%w: %w", ErrPortTaken, err)
	}
	return err
}

// Kill ends the process of node i, if it runs, and returns when it has ended.
func (p *process) Kill(_ context.Context, i int) error {
	n := p.nodes[i]
	if n.cmd == nil {
		return nil
	}
	select {
	case <-n.killed:
	default:
		close(n.killed)
	}
	if err := n.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-n.done
	return nil
}

func (p *process) Close() error {
	err := Parallel(len(p.nodes), func(i int) error {
		defer ReleasePort(p.nodes[i].port)
		return p.Kill(context.Background(), i)
	})
	return errors.Join(err, os.RemoveAll(p.dir))
}
