package client

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
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/redlock"
)

// sessionTTL is the least. It is below that of the locks, so that some sessions end before the locks
// would.
const sessionTTL = time.Second

// pause is between two tries to reach a daemon.
const pause = 20 * time.Millisecond

// runDaemon runs a daemon until standard input ends, which then leaves its clients little time.
func runDaemon(c Config) error {
	// One that was killed may not be gone yet.
	await(func() (io.Closer, error) { return net.Listen("tcp", c.Over) })
	cmd := exec.Command(c.Daemon, "serve", "--listen", c.Over, "--stop-within", "500ms", "--node", strings.Join(c.URLs, ","))
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin)
		// Before it listens the signal would be the end of it.
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

// A served takes locks over HTTP, as programs in other languages do: it has no look at the lock, but
// what the daemon's answers say. Each lock has a session of its own. One of which it is not known what
// has become is left alone, and so ends.
type served struct {
	addr string
	ttl  time.Duration
	http *http.Client
}

// An answered is what this client needs of the answers.
type answered struct {
	Lease    string
	Session  string
	Version  int64
	Held     bool
	ValidFor int64 `json:"valid_for_ms"`
	Lost     string
	Fence    int64
	Permits  []int
	Leases   []answered
	Kind     string // of a lock, or of a problem
	Detail   string
}

func (from served) Close() error { from.http.CloseIdleConnections(); return nil }

// errSilent says that the outcome of a request is not known.
var errSilent = errors.New("no answer")

// A request is one to the daemon.
type request struct {
	how, path, session string
	key, body, accept  string
}

func (from served) send(ctx context.Context, r request) (in *http.Response, err error) {
	out, err := http.NewRequestWithContext(ctx, r.how, "http://"+from.addr+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	out.Header.Set("Redlock-Session", r.session)
	out.Header.Set("Idempotency-Key", r.key)
	out.Header.Set("Accept", r.accept)
	if r.body != "" {
		out.Header.Set("Content-Type", "application/json")
	}
	if in, err = from.http.Do(out); err != nil {
		err = errors.Join(errSilent, err)
	}
	return in, err
}

func (from served) ask(ctx context.Context, r request) (a answered, err error) {
	in, err := from.send(ctx, r)
	if err != nil {
		return a, err
	}
	defer in.Body.Close()
	text, err := io.ReadAll(in.Body)
	if err != nil {
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
	opened, err := from.ask(ctx, request{how: "POST", path: "/v1/sessions", body: fmt.Sprintf(`{"ttl_ms":%d}`, sessionTTL.Milliseconds())})
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
	body, err := json.Marshal(wish)
	if err != nil {
		return nil, err
	}
	sent := history.Now()
	r := request{how: "POST", path: "/v1/locks", session: l.session, key: "this", body: string(body)}
	a, err := from.ask(ctx, r)
	for errors.Is(err, errSilent) && ctx.Err() == nil {
		sleep(ctx, pause) // and ask again: it may have the lock by now
		sent = history.Now()
		a, err = from.ask(ctx, r)
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
	go l.follow(l.session[0]%2 == 0)
	return l, nil
}

// A lease is a lock of a daemon.
type lease struct {
	grant
	from        served
	session, id string
	until       atomic.Int64 // by history.Now
}

func (l *lease) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	return time.Duration(l.until.Load() - history.Now())
}

// hear takes in what an answer says of the lease, to a request that was sent at a time.
func (l *lease) hear(a answered, sent int64) {
	if !a.Held {
		l.end(fmt.Errorf("%w: %s", redlock.ErrLost, a.Lost))
		return
	}
	l.until.Store(max(l.until.Load(), sent+a.ValidFor*int64(time.Millisecond)))
}

// follow hears what the daemon says of the session, until the lease has ended: as a stream, or by one
// request after the other, each of which waits for a change.
func (l *lease) follow(stream bool) {
	r := request{how: "GET", path: "/v1/session", session: l.session}
	for l.ctx.Err() == nil {
		if stream {
			r.accept = "text/event-stream"
		}
		sent := history.Now()
		in, err := l.from.send(l.ctx, r)
		if err != nil {
			sleep(l.ctx, pause)
			continue
		}
		if in.StatusCode != http.StatusOK {
			l.hear(answered{Lost: in.Status}, sent)
		}
		for lines := bufio.NewScanner(in.Body); lines.Scan(); {
			text, isState := strings.CutPrefix(lines.Text(), "data: ")
			if isState != stream {
				continue
			}
			var state answered
			if json.Unmarshal([]byte(text), &state) != nil {
				continue // it was cut off
			}
			r.path = fmt.Sprintf("/v1/session?seen=%d&wait_ms=60000", state.Version)
			mine := slices.IndexFunc(state.Leases, func(a answered) bool { return a.Lease == l.id })
			if mine < 0 {
				state.Leases, mine = []answered{{Lost: "the daemon knows nothing of it: " + text}}, 0
			}
			l.hear(state.Leases[mine], sent)
		}
		in.Body.Close()
	}
}

func (l *lease) Release(ctx context.Context) error {
	defer l.end(redlock.ErrReleased)
	ctx, cancel := context.WithTimeout(ctx, 5*l.from.ttl)
	defer cancel()
	_, err := l.from.ask(ctx, request{how: "DELETE", path: "/v1/locks/" + l.id})
	return err
}
