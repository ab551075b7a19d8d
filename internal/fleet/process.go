package fleet

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// process drives redis-server processes.
type process struct {
	*children
	program string
	opts    Options
	ports   []int // by node; 0: not yet
}

func newProcess(_ context.Context, opts Options) (Driver, error) {
	program, err := Server()
	if err != nil {
		return nil, err
	}
	c, err := newChildren(opts.Nodes)
	if err != nil {
		return nil, err
	}
	return &process{children: c, program: program, opts: opts, ports: make([]int, opts.Nodes)}, nil
}

func (p *process) Launch(ctx context.Context, i int) (url string, err error) {
	err = p.opts.OnPort(i, func(port int) error {
		p.ports[i] = port
		return p.Start(ctx, i, Lost)
	})
	return p.url(i), err
}

// url returns where node i answers.
func (p *process) url(i int) string {
	if p.opts.Arguments != nil {
		return "unix://" + filepath.Join(nodeDir(p.Dir(), p.ports[i]), "socket")
	}
	return "redis://" + Loopback(p.ports[i])
}

func (p *process) Start(ctx context.Context, i int, m Memory) error {
	dir := nodeDir(p.Dir(), p.ports[i])
	if m == Lost {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	args, err := p.args(i, dir)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), p.opts.Env...)
	if err := p.Run(i, cmd); err != nil {
		return err
	}
	if err := p.awaitReady(ctx, i); err != nil {
		p.Kill(ctx, i)
		return err
	}
	return nil
}

// args returns the command line of node i.
func (p *process) args(i int, dir string) ([]string, error) {
	if p.opts.Arguments != nil {
		return append(slices.Clone(p.opts.Arguments), "--unixsocket", filepath.Join(dir, "socket")), nil
	}
	args := []string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(p.ports[i]),
		"--dir", dir,
		"--pidfile", filepath.Join(dir, pidFile),
		"--daemonize", "no",
	}
	switch p.opts.Mode {
	case Sentinel: // insists on a file that it can write to
		config := filepath.Join(dir, "sentinel.conf")
		return append([]string{config, "--sentinel"}, args...), os.WriteFile(config, nil, 0o600)
	case ClusterNode:
		args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	}
	return append(args, p.opts.ServerArgs(i)...), nil
}

// awaitReady waits for this process's PONG, and checks whose it is, because another server that has
// the port would answer just as well, until ours gives up. A socket is no other's, and is only waited for.
func (p *process) awaitReady(ctx context.Context, i int) error {
	ended := func() error { return p.Ended(i) }
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
	c, err := dial(ctx, p.url(i))
	if err != nil {
		return err
	}
	defer c.Close()
	pid, err := serverPID(ctx, c)
	if err == nil && pid != p.Process(i).Pid {
		err = fmt.Errorf("%w: another Redis server answers on %s", ErrPortTaken, Loopback(p.ports[i]))
	}
	return err
}

func (p *process) Close() error {
	defer func() {
		for _, port := range p.ports {
			ReleasePort(port)
		}
	}()
	return p.children.Close()
}
