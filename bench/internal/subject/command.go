package subject

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// commands are the two ways in which programs in other languages have the locks. Both renew, but their
// callers here do not ask for how their locks are.
func commands() []Spec {
	return []Spec{
		command("redquorum-serve", "redquorum, over serve",
			"A process of redlock serve, and a connection with a session of its own for each caller over its Unix socket. The client's CPU time is without the daemon's.", openServed),
		command("redquorum-hold", "redquorum, hold",
			"A process of redlock hold for each lock. The client's CPU time is without theirs.",
			func(_ context.Context, c *redlockCommand) (Client, error) { return holdClient{c}, nil }),
	}
}

// command is a Spec of what the command is built for.
func command(name, title, note string, open func(context.Context, *redlockCommand) (Client, error)) Spec {
	return Spec{
		Subject: record.Subject{Name: name, Title: title, Note: note},
		Open: func(ctx context.Context, urls []string, cfg Config) (Client, error) {
			program, err := built()
			if err != nil {
				return nil, err
			}
			b := &redlockCommand{program, []string{"--ttl", cfg.TTL.String(), "--node", strings.Join(urls, ",")}, cfg.TTL}
			c, err := open(ctx, b)
			if err != nil {
				return nil, err
			}
			return begun(ctx, c)
		},
	}
}

// A redlockCommand is the command, for some servers.
type redlockCommand struct {
	program string
	args    []string // the servers and the TTL
	ttl     time.Duration
}

// built builds the command, which stays in the user's cache.
var built = sync.OnceValues(func() (program string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/redquorum/redquorum").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	program = filepath.Join(cache, "redquorum-bench", "redlock")
	if text, err := exec.Command("go", "-C", strings.TrimSpace(string(root)), "build", "-o", program, "./cmd/redlock").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/redlock: %w: %s", err, text)
	}
	return program, nil
})

// start starts the command, and returns its input, its output and what it says on standard error.
func (b *redlockCommand) start(args ...string) (p *process, err error) {
	p = &process{cmd: exec.Command(b.program, append(args, b.args...)...)}
	p.cmd.Stderr = &p.said
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	said bytes.Buffer // to be read when it has ended
}

// wait returns how it ended: nothing for exit code 0.
func (p *process) wait() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(p.said.Bytes()))
	}
	return nil
}

// patience is for how long ctx lets the command wait, but for a moment in which it can say so.
func patience(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(time.Millisecond, time.Until(end)*9/10)
	}
	return time.Hour
}

type holdClient struct{ *redlockCommand }

func (c holdClient) Close() error { return nil }

func (c holdClient) Acquire(ctx context.Context, name string) (Lock, error) {
	p, err := c.start("hold", "--quiet", "--wait", patience(ctx).String(), name)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { p.cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	in := bufio.NewReader(p.out)
	text, _ := in.ReadBytes('\n')
	var line struct {
		Remaining int64 `json:"remaining_ms"`
	}
	if json.Unmarshal(text, &line) != nil {
		err := p.wait()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	return &holdLock{p, in, time.Now().Add(time.Duration(line.Remaining) * time.Millisecond)}, nil
}

type holdLock struct {
	*process
	rest  *bufio.Reader
	until time.Time
}

func (l *holdLock) Until() time.Time { return l.until }

func (l *holdLock) Release(context.Context) error {
	l.in.Close()
	io.Copy(io.Discard, l.rest)
	return l.wait()
}

// openServed starts a daemon, and returns when it answers.
func openServed(ctx context.Context, b *redlockCommand) (Client, error) {
	dir, err := os.MkdirTemp("", "redquorum-bench-*")
	if err != nil {
		return nil, err
	}
	c := &servedClient{redlockCommand: b, dir: dir, socket: filepath.Join(dir, "socket")}
	daemon, err := b.start("serve", "--listen", "unix:"+c.socket, "--stop-within", "1s")
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.wait() }()
	c.end = func() error { daemon.cmd.Process.Signal(syscall.SIGTERM); return <-ended }
	for {
		conn, err := c.dial()
		if err == nil {
			c.idle = append(c.idle, conn)
			return c, nil
		}
		select {
		case err := <-ended:
			return nil, err
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), c.end())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

type servedClient struct {
	*redlockCommand
	dir    string
	socket string
	end    func() error

	mu   sync.Mutex
	idle []*servedConn // the last was used last
}

func (c *servedClient) Close() error {
	for _, conn := range c.idle {
		conn.Close()
	}
	return errors.Join(c.end(), os.RemoveAll(c.dir))
}

// A servedConn is a connection with a session, of one caller at a time.
type servedConn struct {
	net.Conn
	in      *bufio.Reader
	session string
}

// A servedAnswer is what there is in answers.
type servedAnswer struct {
	Session, Lease, Kind, Detail string
	ValidFor                     int64 `json:"valid_for_ms"`
}

func (c *servedClient) dial() (*servedConn, error) {
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		return nil, err
	}
	return &servedConn{Conn: conn, in: bufio.NewReader(conn)}, nil
}

// ask makes a request. After an error that is not the daemon's word the connection is of no more use.
func (s *servedConn) ask(ctx context.Context, what, body string) (a servedAnswer, err error) {
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { s.SetDeadline(time.Unix(1, 0)); close(cut) })
	defer func() {
		if !stop() {
			<-cut
			s.SetDeadline(time.Time{}) // the answer may have come all the same
		}
	}()
	request := what + " HTTP/1.1\r\nHost: redlock\r\nContent-Type: application/json\r\nRedlock-Session: " + s.session
	if _, err := fmt.Fprintf(s, "%s\r\nContent-Length: %d\r\n\r\n%s", request, len(body), body); err != nil {
		return a, err
	}
	answer, err := http.ReadResponse(s.in, nil)
	if err != nil {
		return a, err
	}
	text, err := io.ReadAll(answer.Body)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &a)
	}
	if err == nil && answer.StatusCode == http.StatusAccepted {
		err = errors.New("too few servers have confirmed the release")
	}
	if err == nil && answer.StatusCode >= 300 {
		err = errors.New(a.Kind + ": " + a.Detail)
	}
	return a, err
}

func (c *servedClient) Acquire(ctx context.Context, name string) (Lock, error) {
	c.mu.Lock()
	var conn *servedConn
	if n := len(c.idle); n > 0 {
		conn, c.idle = c.idle[n-1], c.idle[:n-1]
	}
	c.mu.Unlock()
	if conn == nil {
		var err error
		if conn, err = c.dial(); err != nil {
			return nil, err
		}
	}
	if conn.session == "" {
		a, err := conn.ask(context.Background(), "POST /v1/sessions", `{"ttl_ms":3600000}`)
		if conn.session = a.Session; err != nil {
			return nil, err
		}
	}
	sent := time.Now()
	a, err := conn.ask(ctx, "POST /v1/locks", fmt.Sprintf(`{"name":%q,"ttl_ms":%d,"wait_ms":%d}`, name, c.ttl.Milliseconds(), patience(ctx).Milliseconds()))
	if err != nil {
		conn.Close()
		if other, err := c.dial(); err == nil { // the session may have got the lock all the same
			other.session = conn.session
			other.ask(context.Background(), "DELETE /v1/session", "")
			other.Close()
		}
		return nil, err
	}
	return &servedLock{client: c, conn: conn, id: a.Lease, until: sent.Add(time.Duration(a.ValidFor) * time.Millisecond)}, nil
}

type servedLock struct {
	client *servedClient
	conn   *servedConn
	id     string
	until  time.Time
}

func (l *servedLock) Until() time.Time { return l.until }

func (l *servedLock) Release(ctx context.Context) error {
	_, err := l.conn.ask(ctx, "DELETE /v1/locks/"+l.id, "")
	if ctx.Err() != nil {
		l.conn.Close()
		return err
	}
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	l.client.idle = append(l.client.idle, l.conn)
	return err
}
