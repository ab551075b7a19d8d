package client

import (
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/redlock"
)

// sessionTTL is the shortest TTL of a session. It is below the TTL of the locks, so that some
// sessions end before their locks would.
const sessionTTL = time.Second

// pause is the time between two tries to reach a daemon.
const pause = 20 * time.Millisecond

// runDaemon runs a daemon until standard input ends. After that, the daemon gives its clients only
// a short time to finish.
func runDaemon(c Config) error {
	// Wait for the port: a killed daemon may still be running.
	await(func() (io.Closer, error) { return net.Listen("tcp", c.Over) })
	cmd := exec.Command(c.Daemon, "serve", "--listen", c.Over, "--stop-within", "500ms", "--node", strings.Join(c.URLs, ","))
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin)
		// Wait until the daemon listens: before that, the signal would kill it.
		await(func() (io.Closer, error) { return net.Dial("tcp", c.Over) })
		cmd.Process.Signal(syscall.SIGTERM)
	}()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, said.Bytes())
	}
	return nil
}

// await tries to open something until it can, and closes it.
func await(open func() (io.Closer, error)) {
	for {
		if opened, err := open(); err == nil {
			opened.Close()
			return
		}
		time.Sleep(pause)
	}
}

// A served takes locks over HTTP, as programs in other languages do: the answers of the daemon are
// its only information. Each lock has a session of its own. After an unknown outcome the client
// leaves the session alone, so the session ends.
type served struct {
	addr string
	ttl  time.Duration
	http *http.Client
}

// An answered has the fields of the answers that this client needs.
type answered struct {
	Lease    string
	Session  string
	Held     bool
	ValidFor int64 `json:"valid_for_ms"`
	Lost     string
	Fence    int64
	Permits  []int
	Leases   []answered
	Kind     string // kind of a lock, or of a problem
	Detail   string
}

func (from served) Close() error { from.http.CloseIdleConnections(); return nil }

// errSilent means that the outcome of a request is unknown.
var errSilent = errors.New("no answer")

// ask sends a request of a session, which may not exist yet. A nil body means no body.
func (from served) ask(ctx context.Context, session, request string, body map[string]any) (a answered, err error) {
	how, path, _ := strings.Cut(request, " ")
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return a, err
		}
	}
	out, err := http.NewRequestWithContext(ctx, how, "http://"+from.addr+path, bytes.NewReader(text))
	if err != nil {
		return a, err
	}
	out.Header.Set("Redlock-Session", session)
	if body != nil {
		out.Header.Set("Content-Type", "application/json")
		out.Header.Set("Idempotency-Key", "this")
	}
	in, err := from.http.Do(out)
	if err != nil {
		return a, errors.Join(errSilent, err)
	}
	defer in.Body.Close()
	if text, err = io.ReadAll(in.Body); err != nil {
		return a, errors.Join(errSilent, err)
	}
	if len(text) > 0 {
		err = json.Unmarshal(text, &a)
	}
	switch {
	case in.StatusCode == http.StatusAccepted:
		err = redlock.ErrNoQuorum
	case in.StatusCode >= 300:
		err = refusal(a.Kind + ": " + a.Detail)
	}
	return a, err
}

func (from served) acquire(ctx context.Context, d demand) (lock, error) {
	opened, err := from.ask(ctx, "", "POST /v1/sessions", map[string]any{"ttl_ms": sessionTTL.Milliseconds()})
	if err != nil {
		return nil, err
	}
	l := &lease{from: from, session: opened.Session}
	end, _ := ctx.Deadline()
	wish := map[string]any{"fenced": d.Lock.HasToken(), "fair": d.Fair, "ttl_ms": from.ttl.Milliseconds(), "wait_ms": max(0, time.Until(end).Milliseconds())}
	switch d.Lock {
	case history.Set:
		wish["names"] = d.Names
	case history.Shared:
		wish["kind"] = "shared"
		fallthrough
	default:
		wish["name"] = d.Name
	}
	if d.Most > 0 {
		wish["permits"] = d.Most
	}
	sent := history.Now()
	a, err := from.ask(ctx, l.session, "POST /v1/locks", wish)
	for errors.Is(err, errSilent) && ctx.Err() == nil {
		sleep(ctx, pause) // then ask again, because the session may have the lock by now
		sent = history.Now()
		a, err = from.ask(ctx, l.session, "POST /v1/locks", wish)
	}
	if err != nil {
		return nil, err
	}
	l.id, l.fence = a.Lease, a.Fence
	if len(a.Permits) > 0 {
		l.permit = a.Permits[0]
	}
	l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	l.hear(a, sent)
	return l, nil
}

// A lease is a lock of a daemon.
type lease struct {
	grant
	from        served
	session, id string
	until       int64 // by history.Now
}

// Remaining asks the daemon for the lease. Without an answer, the last answer remains valid.
func (l *lease) Remaining() time.Duration {
	ctx, cancel := context.WithTimeout(l.ctx, l.from.ttl/4)
	defer cancel()
	sent := history.Now()
	state, err := l.from.ask(ctx, l.session, "GET /v1/session", nil)
	switch mine := slices.IndexFunc(state.Leases, func(a answered) bool { return a.Lease == l.id }); {
	case errors.Is(err, errSilent):
	case mine >= 0:
		l.hear(state.Leases[mine], sent)
	default:
		l.hear(answered{Lost: fmt.Sprint("the daemon does not know the lease: ", err)}, sent)
	}
	if l.ctx.Err() != nil {
		return 0
	}
	return time.Duration(l.until - history.Now())
}

// hear applies an answer about the lease. The request was sent at the given time.
func (l *lease) hear(a answered, sent int64) {
	if !a.Held {
		l.end(fmt.Errorf("%w: %s", redlock.ErrLost, a.Lost))
		return
	}
	l.until = max(l.until, sent+a.ValidFor*int64(time.Millisecond))
}

func (l *lease) Release(ctx context.Context) error {
	defer l.end(redlock.ErrReleased)
	ctx, cancel := context.WithTimeout(ctx, 5*l.from.ttl)
	defer cancel()
	_, err := l.from.ask(ctx, l.session, "DELETE /v1/locks/"+l.id, nil)
	return err
}
