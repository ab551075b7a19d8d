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

// served measures the access of programs in other languages. The daemon renews the locks, but the
// callers do not ask it for losses.
func served() Spec {
	return Spec{
		Subject: record.Subject{Name: "redquorum-serve", Title: "redquorum, over serve",
			Note: "A process of redlock serve. Each caller has a connection over its Unix socket, with a session. The client's CPU time is without the daemon's."},
		Prepare: func() error { _, err := built(); return err },
		Open: func(ctx context.Context, urls []string, cfg Config) (Client, error) {
			c, err := openServed(ctx, urls, cfg)
			if err != nil {
				return nil, err
			}
			return begun(ctx, c)
		},
	}
}

// built builds the command into the user's cache.
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

type servedClient struct {
	ttl    time.Duration
	dir    string // of the socket
	daemon *exec.Cmd
	said   bytes.Buffer
	ended  chan struct{}

	mu   sync.Mutex
	idle []*servedConn // the connection used last is at the end
}

// openServed starts a daemon. It returns when the daemon answers.
func openServed(ctx context.Context, urls []string, cfg Config) (*servedClient, error) {
	program, err := built()
	if err != nil {
		return nil, err
	}
	c := &servedClient{ttl: cfg.TTL, ended: make(chan struct{})}
	if c.dir, err = os.MkdirTemp("", "redquorum-bench-*"); err != nil {
		return nil, err
	}
	c.daemon = exec.Command(program, "serve", "--listen", "unix:"+c.socket(), "--stop-within", "1s", "--ttl", cfg.TTL.String(), "--node", strings.Join(urls, ","))
	c.daemon.Stderr = &c.said
	if err := c.daemon.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.ended)
		_ = c.daemon.Wait()
	}()
	for {
		if conn, err := c.dial(); err == nil {
			c.idle = append(c.idle, conn)
			return c, nil
		}
		select {
		case <-c.ended:
			return nil, fmt.Errorf("redlock serve ended: %s", bytes.TrimSpace(c.said.Bytes()))
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), c.Close())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (c *servedClient) socket() string { return filepath.Join(c.dir, "socket") }

func (c *servedClient) Close() error {
	for _, conn := range c.idle {
		conn.Close()
	}
	_ = c.daemon.Process.Signal(syscall.SIGTERM) // the daemon may have ended
	<-c.ended
	return os.RemoveAll(c.dir)
}

// A servedConn is a connection with its own session, for one caller at a time.
type servedConn struct {
	net.Conn
	in      *bufio.Reader
	session string
}

func (c *servedClient) dial() (*servedConn, error) {
	conn, err := net.Dial("unix", c.socket())
	if err != nil {
		return nil, err
	}
	return &servedConn{Conn: conn, in: bufio.NewReader(conn)}, nil
}

// A servedAnswer has the fields of all answers of the daemon.
type servedAnswer struct {
	Session, Lease, Kind, Detail string
	ValidFor                     int64 `json:"valid_for_ms"`
}

// ask sends a request, written as text so that the client costs little. The caller must close the
// connection after an error.
func (s *servedConn) ask(ctx context.Context, what, body string) (a servedAnswer, err error) {
	stop := context.AfterFunc(ctx, func() { s.SetDeadline(time.Unix(1, 0)) })
	defer stop()
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
	switch {
	case err != nil:
		return a, err
	case answer.StatusCode == http.StatusAccepted:
		return a, errors.New("too few servers have confirmed the release")
	case answer.StatusCode >= 300:
		return a, errors.New(a.Kind + ": " + a.Detail)
	}
	return a, nil
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
		a, err := conn.ask(ctx, "POST /v1/sessions", `{"ttl_ms":3600000}`)
		if conn.session = a.Session; err != nil {
			conn.Close()
			return nil, err
		}
	}
	wait := time.Hour
	if end, ok := ctx.Deadline(); ok {
		wait = max(time.Millisecond, time.Until(end)*9/10) // the remaining time is for the answer
	}
	sent := time.Now()
	a, err := conn.ask(ctx, "POST /v1/locks", fmt.Sprintf(`{"name":%q,"ttl_ms":%d,"wait_ms":%d}`, name, c.ttl.Milliseconds(), wait.Milliseconds()))
	if err != nil {
		conn.Close()
		if other, err := c.dial(); err == nil { // the session may have got the lock
			other.session = conn.session
			_, _ = other.ask(context.WithoutCancel(ctx), "DELETE /v1/session", "")
			other.Close()
		}
		return nil, err
	}
	return &servedLock{c, conn, a.Lease, sent.Add(time.Duration(a.ValidFor) * time.Millisecond)}, nil
}

type servedLock struct {
	client *servedClient
	conn   *servedConn
	lease  string
	until  time.Time
}

func (l *servedLock) Until() time.Time { return l.until }

func (l *servedLock) Release(ctx context.Context) error {
	if _, err := l.conn.ask(ctx, "DELETE /v1/locks/"+l.lease, ""); err != nil {
		l.conn.Close()
		return err
	}
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	l.client.idle = append(l.client.idle, l.conn)
	return nil
}
