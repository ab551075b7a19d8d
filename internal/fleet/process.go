package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// servers are the programs that will do, in order of preference.
var servers = []string{"redis-server", "valkey-server"}

func findServer() (string, error) {
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
	writes  func(i int) Persistence
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

func startProcess(ctx context.Context, opts Options) (driver, []string, error) {
	program, err := findServer()
	if err != nil {
		return nil, nil, err
	}
	sweepProcesses()
	dir, err := makeFleetDir()
	if err != nil {
		return nil, nil, err
	}
	p := &process{program: program, writes: opts.persistence, dir: dir, spawner: newSpawner(), nodes: make([]*processNode, opts.Nodes)}
	for i := range p.nodes {
		p.nodes[i] = &processNode{}
	}

	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	urls := make([]string, opts.Nodes)
	err = parallel(opts.Nodes, func(i int) error {
		err := onPort(opts.fixedPort(i), func(port int) error {
			p.nodes[i].port = port
			p.nodes[i].dir = nodeDir(p.dir, port)
			return p.start(ctx, i, Lost)
		})
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		urls[i] = "redis://" + loopback(p.nodes[i].port)
		return nil
	})
	if err != nil {
		return nil, nil, errors.Join(err, p.close())
	}
	return p, urls, nil
}

func (p *process) start(ctx context.Context, i int, m Memory) error {
	n := p.nodes[i]
	if m == Lost {
		if err := os.RemoveAll(n.dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	// One log a run: an earlier run's complaints must not explain this one's end.
	log, err := os.Create(filepath.Join(n.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close() // the server has its own copy
	cmd := exec.Command(p.program, append(serverArgs(p.writes(i)),
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(n.port),
		"--dir", n.dir,
		"--pidfile", filepath.Join(n.dir, pidFile),
		"--daemonize", "no",
	)...)
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
		p.kill(ctx, i)
		return err
	}
	return nil
}

// awaitReady waits for this process's PONG: another server that has the port
// would answer just as well, until ours gives up.
func (n *processNode) awaitReady(ctx context.Context) error {
	exited := func() error {
		select {
		case <-n.done:
			return n.exitError()
		default:
			return nil
		}
	}
	rawURL := "redis://" + loopback(n.port)
	if err := awaitReady(ctx, rawURL, exited); err != nil {
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
		return fmt.Errorf("%w: another Redis server answers on %s", errPortTaken, loopback(n.port))
	}
	return nil
}

func (n *processNode) exitError() error {
	log, _ := os.ReadFile(filepath.Join(n.dir, "log"))
	err := fmt.Errorf("%s ended: %s; the end of its log:\n%s", filepath.Base(n.cmd.Path), n.cmd.ProcessState, lastLines(log, 5))
	if strings.Contains(string(log), "ddress already in use") {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

func (p *process) kill(_ context.Context, i int) error {
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

func (p *process) close() error {
	err := parallel(len(p.nodes), func(i int) error {
		err := p.kill(context.Background(), i)
		release(p.nodes[i].port)
		return err
	})
	p.spawner.close()
	return errors.Join(err, os.RemoveAll(p.dir))
}

func lastLines(log []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
